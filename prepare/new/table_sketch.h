// TableSketch: describes a CSV file: its delimiter, whether it has a header, and a sketch of each column.
//
// Promise: the cells are those of data/tables/csv_cells.h, and the file may be compressed (data/tables/csv_bytes.h).
// The beginning of the file is read to find the delimiter and the header, and then the whole file is read once, or
// twice if it may have numbers such as "1,281.5" whose decimal sign must be found. The sketches of all columns together
// keep at most 4,000,000 different texts or, for more than 20,000 columns, at most 200 texts of each column.
//
// How: the delimiter is chosen from comma, semicolon, tab and bar. The candidates are those with which all of the first
// rows have the same number of cells, which is at least two. The candidate with the most numbers in these rows is
// chosen, and among candidates with as many numbers the one with the most cells. If there is
// no candidate, the delimiter with which the first row has the most cells is chosen; if each of the four gives one
// cell, the comma is chosen. The first row is a header in three cases: it has a text in a column that has only numbers
// in the next rows; it has only texts, which all differ, and none of them occurs again in its column in the next rows;
// or its cells are 0, 1, 2 and so on.
//
// what can fail -> what the caller sees -> the test that shows it (prepare/new/new_test.cc)
//   a file is missing, empty, without rows, not text, or compressed in an unreadable way; a row has another number of
//   cells; two columns have one name; there is only one column
//     -> Error (kData) with path, line and remedy -> TableSketch.Refuses*
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prepare/new/column_sketch.h"

namespace lockstep {

// Says how to parse a CSV file.
struct Dialect {
  char delimiter = ',';
  bool header = false;
};

struct TableSketch {
  std::string path;
  Dialect dialect;
  std::vector<std::string> names;  // names of the columns; without a header, their numbers from 0
  std::vector<ColumnSketch> columns;
  std::vector<DecimalSigns> signs;  // of the numbers of each column
  int64_t rows = 0;

  // Returns the column's number, from 0, or -1 if there is no such column.
  int64_t Find(const std::string& name) const;
  bool Has(const std::string& name) const { return Find(name) >= 0; }
  // Returns a column's name for messages: "column 4 (Age)".
  std::string NameOf(int64_t column) const;
};

// Reads a CSV file as `dialect` says. Without `dialect`, finds the dialect, and throws if the file has only one column.
// Throws Error (kData).
TableSketch ReadTableSketch(const std::string& path, std::optional<Dialect> dialect = std::nullopt);

// Finds the delimiter and the header from the file's first rows. Throws Error (kData).
Dialect FindDialect(const std::string& path);

// Returns the delimiter in words, for messages: "comma".
std::string NameOfDelimiter(char delimiter);

}  // namespace lockstep
