#include "launch/cli/command/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/say.h"

namespace lockstep {
namespace {

bool BeginsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

// Returns the number of characters in a UTF-8 text.
size_t WidthOf(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, BeginsCharacter));
}

}  // namespace

std::string TableText(const std::vector<TableRow>& rows) {
  std::vector<size_t> widths;
  for (const TableRow& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], WidthOf(row[i]));
  }
  std::string text;
  for (const TableRow& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - WidthOf(row[i]) + 2, ' ');
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string Shortened(std::string_view text, size_t most) {
  std::string line = Printable(text);
  std::ranges::replace_if(line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  if (WidthOf(line) <= most) return line;
  size_t end = 0;
  for (size_t kept = 0; end < line.size(); ++end) {
    if (BeginsCharacter(line[end]) && kept++ + 3 == most) break;
  }
  return line.substr(0, end) + "...";
}

std::string FigureText(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.4g}", value);
}

std::string SpreadText(double mean, double deviation) {
  if (std::isnan(deviation)) return FigureText(mean);
  return fmt::format("{} \u00b1 {:.2g}", FigureText(mean), deviation);
}

}  // namespace lockstep
