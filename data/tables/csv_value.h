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

// The place of one cell: column `column`, from 0, of the row that begins in line `row_line`, from 1, of a file. `cells`
// has just read this cell.
struct CsvPlace {
  const std::string& path;
  const CsvLayout& layout;
  CsvCells& cells;
  int64_t row_line;
  int64_t column;

  std::string_view text() const { return cells.cell(); }
};

// FailAt() throws Error (kData) with the place of the cell and `what`. If the row has too many or too few cells, they
// may be in the wrong columns; FailAt() then calls FailRagged(). FailRagged() throws Error (kData), which says that the
// row has `columns` cells and how many are expected.
[[noreturn]] void FailAt(const CsvPlace& place, const std::string& what);
[[noreturn]] void FailRagged(const CsvPlace& place, int64_t columns);

// Returns the beginning of `text` in quotes, for an error message.
std::string Quoted(std::string_view text);

// IsMissing() returns whether `text` stands for a missing value. NumberIsMissing() is for the text of a number or a
// date: in addition to the texts that IsMissing() accepts, it accepts NaT and None, which pandas and Python write.
// IsMissing() does not accept these two texts, because a category or a class may have such a name.
bool IsMissing(std::string_view text);
bool NumberIsMissing(std::string_view text);

// Parses the whole of `text` as a number, and writes it to `number`. Returns false if `text` is no number of the type
// `Number`.
template <typename Number>
bool ParseWhole(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Parses `text`, writes its number to `number`, and returns whether `text` is a number in the range of a float. A
// number that is too close to 0 for a float is accepted, but a number that is too close to 0 even for a long double
// (1e-5000) is refused as a mistake.
template <typename Number>
bool ParseNumber(std::string_view text, Number& number) {
  constexpr auto kGreatest = std::numeric_limits<float>::max();
  if (ParseWhole(text, number)) return std::abs(number) <= kGreatest;
  // from_chars refuses a plus sign, spaces (which a cell may have inside its quotes), and numbers that are too close to
  // 0 for the type `Number`.
  text = TrimmedCell(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  long double wide = 0;
  if (!ParseWhole(text, wide)) return false;
  number = static_cast<Number>(wide);
  return std::abs(wide) <= kGreatest;
}

// RequireMean() is for a cell that is missing. It throws Error (kData) unless options.mean_if_missing is set.
// RequireMissing() is for a cell that is not a number. It throws Error (kData) if the cell is not missing, and
// otherwise calls RequireMean(). The errors propose a change of the config only if the file is a training file, because
// the columns of a trained model cannot change.
void RequireMean(const CsvOptions& options, const CsvPlace& place);
void RequireMissing(const CsvOptions& options, const CsvPlace& place);

// ReadNumber() reads a cell of a column of numbers, and ReadDate() a cell of a column of dates. Both return false if
// the cell is missing. Both throw Error (kData) if the cell holds anything else, or if it is missing although
// options.mean_if_missing is not set.
template <typename Number>
bool ReadNumber(const CsvOptions& options, const CsvPlace& place, Number& number) {
  if (ParseNumber(place.text(), number)) return true;
  RequireMissing(options, place);
  return false;
}
bool ReadDate(const CsvOptions& options, const CsvPlace& place, CsvDate& date);

// The following functions return the value of a cell. They throw Error (kData) if the cell does not hold such a value.
int64_t ClassIn(const CsvOptions& options, const CsvPlace& place);  // a class number
std::string_view ClassNameIn(const CsvPlace& place);
// Returns the target of a task other than classification.
float TargetIn(const CsvOptions& options, const CsvPlace& place);
std::string_view CategoryIn(const CsvOptions& options, const CsvPlace& place);

}  // namespace lockstep
