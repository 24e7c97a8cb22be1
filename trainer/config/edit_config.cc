#include "trainer/config/edit_config.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>

#include <cstddef>

#include "base/error.h"
#include "trainer/config/read_config.h"
#include "trainer/config/schema/config.pb.h"

namespace lockstep {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;
using Tree = TextFormat::ParseInfoTree;

// The parser counts a tab as the columns up to the next multiple of eight.
constexpr int kTabWidth = 8;

size_t OffsetOf(const std::string& text, const TextFormat::ParseLocation& location) {
  size_t at = 0;
  for (int line = 0; line < location.line; ++line) at = text.find('\n', at) + 1;
  for (int column = 0; column < location.column; ++at) {
    column += text[at] == '\t' ? kTabWidth - column % kTabWidth : 1;
  }
  return at;
}

size_t LineBegin(const std::string& text, size_t at) {
  const size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  return before == std::string::npos ? 0 : before + 1;
}

std::string IndentOf(const std::string& text, size_t line_begin) {
  const size_t end = text.find_first_not_of(" \t", line_begin);
  return text.substr(line_begin, (end == std::string::npos ? text.size() : end) - line_begin);
}

void InsertComment(std::string& text, size_t at, const std::string& why) {
  if (why.empty()) return;
  const size_t line = LineBegin(text, at);
  text.insert(line, fmt::format("{}# {}\n", IndentOf(text, line), why));
}

void Edit(const std::string& path, std::string& text, const FieldEdit& edit) {
  config::Config config;
  Tree tree;
  TextFormat::Parser parser;
  parser.WriteLocationsTo(&tree);
  std::string why_not;
  ParseText(text, why_not);
  if (!why_not.empty() || !parser.ParseFromString(text, &config)) {
    throw UsageError("{}: {}", path, why_not);
  }
  const size_t dot = edit.name.find('.');
  const std::string outer = edit.name.substr(0, dot);
  const FieldDescriptor* field = config::Config::descriptor()->FindFieldByName(outer);
  const FieldDescriptor* message = nullptr;
  const Tree* fields = &tree;
  if (dot != std::string::npos) {
    message = field;
    field = message->message_type()->FindFieldByName(edit.name.substr(dot + 1));
    fields = tree.GetTreeForNested(message, -1);
  }
  const std::string assignment = fmt::format("{}: {}", field->name(), edit.value);
  if (fields == nullptr) {
    if (!text.empty() && text.back() != '\n') text += '\n';
    if (!edit.why.empty()) text += fmt::format("# {}\n", edit.why);
    text += fmt::format("{} {{ {} }}\n", outer, assignment);
    return;
  }
  const TextFormat::ParseLocationRange range = fields->GetLocationRange(field, -1);
  if (range.start.line >= 0) {
    const size_t begin = OffsetOf(text, range.start);
    text.replace(begin, OffsetOf(text, range.end) - begin, assignment);
    InsertComment(text, begin, edit.why);
    return;
  }
  if (message == nullptr) {
    if (!text.empty() && text.back() != '\n') text += '\n';
    if (!edit.why.empty()) text += fmt::format("# {}\n", edit.why);
    text += assignment + '\n';
    return;
  }
  // Behind the brace of the message, on a line of its own if the brace ends its line.
  const size_t begin = OffsetOf(text, tree.GetLocationRange(message, -1).start);
  const size_t inside = text.find_first_of("{<", begin) + 1;
  if (text[inside] == '\n') {
    const std::string indent = IndentOf(text, LineBegin(text, begin)) + "  ";
    std::string lines = edit.why.empty() ? "" : fmt::format("\n{}# {}", indent, edit.why);
    text.insert(inside, fmt::format("{}\n{}{}", lines, indent, assignment));
    return;
  }
  text.insert(inside, " " + assignment);
  InsertComment(text, begin, edit.why);
}

}  // namespace

std::string EditedConfig(const std::string& path, const std::string& text,
                         const std::vector<FieldEdit>& edits) {
  std::string edited = text;
  for (const FieldEdit& edit : edits) Edit(path, edited, edit);
  return edited;
}

}  // namespace lockstep
