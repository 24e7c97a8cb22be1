// Parses the value of one cell of a CSV table.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "data/tables/csv_cells.h"
#include "data/tables/csv_date.h"
#include "data/tables/csv_layout.h"
#include "data/tables/csv_options.h"

namespace lockstep {

// One cell: a column of one row of a file. `cells` is at this cell.
struct CsvPlace {
  const std::string& path;
  const CsvLayout& layout;
  CsvCells& cells;
  int64_t row_line;
  int64_t column;

  std::string_view text() const { return cells.cell(); }
};

// FailAt() throws Error (kData) with the place of the cell and `what`. If the row has too many or too few cells, its
// cells may be in the wrong columns, and the error says that instead. FailRagged() throws the error about the number of
// cells.
[[noreturn]] void FailAt(const CsvPlace& place, const std::string& what);
[[noreturn]] void FailRagged(const CsvPlace& place, int64_t columns);

// Returns the beginning of `text` in quotes, for an error message.
std::string Quoted(std::string_view text);

// Return whether `text` stands for a missing value. NumberIsMissing() is for numbers and dates. It also counts NaT and
// None as missing, which pandas and Python write. IsMissing() does not, because a category or a class may have such a
// name.
bool IsMissing(std::string_view text);
bool NumberIsMissing(std::string_view text);

template <typename Number>
bool ParseWhole(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Returns whether `text` is a number in the range of a float. A number that is too small for a float is accepted, but a
// number that is too small even for a long double (1e-5000) is refused as a mistake.
template <typename Number>
bool ParseNumber(std::string_view text, Number& number) {
  constexpr auto kGreatest = std::numeric_limits<float>::max();
  if (ParseWhole(text, number)) return std::abs(number) <= kGreatest;
  // The text may have spaces inside quotes, a plus sign, which from_chars refuses, or a number that is too small for a
  // float.
  text = TrimmedCell(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  long double wide = 0;
  if (!ParseWhole(text, wide)) return false;
  number = static_cast<Number>(wide);
  return std::abs(wide) <= kGreatest;
}

// Both functions throw Error (kData) unless the options say that another value replaces a missing one. RequireMean() is
// for a cell that is known to be missing. RequireMissing() is for a cell that is not a number, and also throws if the
// cell is not missing. The error proposes a change of the config only if the file is a training file, because the
// columns of a trained model cannot change.
void RequireMean(const CsvOptions& options, const CsvPlace& place);
void RequireMissing(const CsvOptions& options, const CsvPlace& place);

// ReadNumber() reads a cell of a column of numbers, and ReadDate() a cell of a column of dates. They return false if
// the cell is missing. They throw Error (kData) if the cell holds something else, or if it must not be missing.
template <typename Number>
bool ReadNumber(const CsvOptions& options, const CsvPlace& place, Number& number) {
  if (ParseNumber(place.text(), number)) return true;
  RequireMissing(options, place);
  return false;
}
bool ReadDate(const CsvOptions& options, const CsvPlace& place, CsvDate& date);

// The following functions return the value of a cell. They throw Error (kData) if the cell holds something else.
int64_t ClassIn(const CsvOptions& options, const CsvPlace& place);  // a class number
std::string_view ClassNameIn(const CsvPlace& place);
// The target of a task without classes.
float TargetIn(const CsvOptions& options, const CsvPlace& place);
std::string_view CategoryIn(const CsvOptions& options, const CsvPlace& place);

}  // namespace lockstep
