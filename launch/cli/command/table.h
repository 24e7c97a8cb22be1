// Table: formats text in columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using TableRow = std::vector<std::string>;

// Returns one line for each row. There are two spaces between columns, and none at the end of a line.
std::string TableText(const std::vector<TableRow>& rows);

// Returns `text` without line breaks and with at most `most` characters. If characters were cut off, the result ends
// with "...".
std::string Shortened(std::string_view text, size_t most);

// Returns the number with four significant digits; "-" for NaN.
std::string FigureText(double value);

// Returns a mean and its deviation, such as "0.0961 ± 0.024"; the mean alone if the deviation is NaN.
std::string SpreadText(double mean, double deviation);

}  // namespace lockstep
