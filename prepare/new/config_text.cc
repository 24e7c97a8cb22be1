#include "prepare/new/config_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

namespace lockstep {
namespace {

constexpr size_t kColumns = 100;

// Replaces control characters by spaces, because a column's name may hold line breaks.
std::string OnOneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  return text;
}

}  // namespace

void ConfigText::Comment(const std::string& text) {
  std::istringstream words(OnOneLine(text));
  const std::string begin = Indent() + "#";
  std::string line = begin;
  for (std::string word; words >> word;) {
    if (line.size() > begin.size() && line.size() + 1 + word.size() > kColumns) {
      text_ += line + '\n';
      line = begin;
    }
    line += ' ' + word;
  }
  text_ += line + '\n';
}

void ConfigText::Line(const std::string& line, const std::string& comment) {
  const std::string whole = Indent() + line + "  # " + OnOneLine(comment);
  if (comment.empty() || whole.size() > kColumns) {
    if (!comment.empty()) Comment(comment);
    text_ += Indent() + line + '\n';
  } else {
    text_ += whole + '\n';
  }
}

void ConfigText::Open(const std::string& name) {
  text_ += Indent() + name + " {\n";
  ++depth_;
}

void ConfigText::Close() {
  --depth_;
  text_ += Indent() + "}\n";
}

std::string InQuotes(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
      quoted += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string ListInQuotes(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(InQuotes(text));
  if (quoted.size() == 1) return quoted[0];
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

std::string AsSetting(double number) { return fmt::format("{:.6g}", number); }

}  // namespace lockstep
