// Table: columns of text below each other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using TableRow = std::vector<std::string>;

// One line for each row, with two spaces between columns and none at a line's end.
std::string TableText(const std::vector<TableRow>& rows);

// `text` without line breaks and with at most `most` characters, the last of them "..." where it had more.
std::string Shortened(std::string_view text, size_t most);

// Four significant digits; "-" for what is no number.
std::string FigureText(double value);

}  // namespace lockstep
