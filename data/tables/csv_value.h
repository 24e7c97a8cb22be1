// Parses the value of one cell of a CSV table.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "data/tables/csv.h"
#include "data/tables/csv_cells.h"
#include "data/tables/csv_layout.h"

namespace lockstep {

// A column of one row of a file, at whose cell `cells` is.
struct CsvPlace {
  const std::string& path;
  const CsvLayout& layout;
  CsvCells& cells;
  int64_t row_line;
  int64_t column;

  std::string_view text() const { return cells.cell(); }
};

// Throws an Error (kData) because of the cell. Where the row is ragged its cells are in the wrong
// columns, and that is said instead.
[[noreturn]] void FailAt(const CsvPlace& place, const std::string& what);
[[noreturn]] void FailRagged(const CsvPlace& place, int64_t columns);

// The beginning of `text` in quotes, for an error line.
std::string Quoted(std::string_view text);

// Whether `text` says that there is no value.
bool IsMissing(std::string_view text);

template <typename Number>
bool ParseWhole(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Whether `text` is a number that a float can hold, or is too small for one. What is too small for a long
// double, too (1e-5000), is taken for a mistake.
template <typename Number>
bool ParseNumber(std::string_view text, Number& number) {
  constexpr auto kGreatest = std::numeric_limits<float>::max();
  if (ParseWhole(text, number)) return std::abs(number) <= kGreatest;
  // Quotes with spaces in them, a sign that from_chars does not know, less than the least float.
  text = TrimmedCell(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  long double wide = 0;
  if (!ParseWhole(text, wide)) return false;
  number = static_cast<Number>(wide);
  return std::abs(wide) <= kGreatest;
}

// For a cell that is missing, and for one that is no number: fails unless it is missing and the mean
// stands for it.
void RequireMean(const CsvOptions& options, const CsvPlace& place);
void RequireMissing(const CsvOptions& options, const CsvPlace& place);

// Each fails where the cell says something else.
int64_t ClassIn(const CsvOptions& options, const CsvPlace& place);  // a number
std::string_view ClassNameIn(const CsvPlace& place);
float TargetIn(const CsvOptions& options, const CsvPlace& place);  // of another task
std::string_view CategoryIn(const CsvOptions& options, const CsvPlace& place);

}  // namespace lockstep
