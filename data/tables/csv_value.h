// Parses the value of one cell of a CSV table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/tables/csv_cells.h"
#include "data/tables/csv_date.h"
#include "data/tables/csv_layout.h"
#include "data/tables/csv_number.h"
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

// RequireMean() is for a cell that is missing. It throws Error (kData) unless options.mean_if_missing is set.
// RequireMissing() is for a cell that is not a number with the sign `decimal`. It throws Error (kData) if the cell is
// not missing, and otherwise calls RequireMean(). The errors propose a change of the config only if the file is a
// training file, because the columns of a trained model cannot change.
void RequireMean(const CsvOptions& options, const CsvPlace& place);
void RequireMissing(const CsvOptions& options, const CsvPlace& place, CsvDecimal decimal);

// ReadNumber() reads a cell of a column of numbers, in which true is 1 and false is 0, and ReadDate() a cell of a
// column of dates. Both return false if the cell is missing. Both throw Error (kData) if the cell holds anything else,
// or if it is missing although options.mean_if_missing is not set.
template <typename Number>
bool ReadNumber(const CsvOptions& options, const CsvPlace& place, CsvDecimal decimal,
                Number& number) {
  if (ParseNumber(place.text(), decimal, number) || ParseTruth(place.text(), number)) return true;
  RequireMissing(options, place, decimal);
  return false;
}
bool ReadDate(const CsvOptions& options, const CsvPlace& place, CsvDate& date);

// The following functions return the value of a cell. They throw Error (kData) if the cell does not hold such a value.
// Returns a class number.
int64_t ClassIn(const CsvOptions& options, const CsvPlace& place, CsvDecimal decimal);
std::string_view ClassNameIn(const CsvPlace& place);
// Returns the target of a task other than classification.
float TargetIn(const CsvOptions& options, const CsvPlace& place, CsvDecimal decimal);
// Returns the text of a category, or an empty text if the cell is missing.
std::string_view CategoryIn(const CsvOptions& options, const CsvPlace& place);

}  // namespace lockstep
