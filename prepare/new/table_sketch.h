// TableSketch: what one pass over a CSV file finds: its delimiter, whether it has a header, and a sketch of each column.
//
// Promise: the cells are those of data/tables/csv_cells.h, and the file may be compressed (data/tables/csv_bytes.h). It
// is read once, after its first rows were read to find the delimiter and the header. The memory for texts is bounded
// for all columns together.
//
// How: of the delimiters comma, semicolon, tab and bar the one counts that gives the first rows the same number of
// cells, and the most of them. The first row is a header if a column that holds numbers in the next rows has a text
// there, if all columns hold texts and those of the first row do not come again, or if its cells are 0, 1, 2 and so on.
//
// what can fail -> what the caller sees -> the test that shows it (prepare/new/new_test.cc)
//   a file that is missing, empty, without rows, no text, or compressed so that it cannot be read; a ragged row; two
//   columns of one name; one column
//     -> Error (kData) with path, line and cure -> TableSketch.Refuses*
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prepare/new/column_sketch.h"

namespace lockstep {

// How a CSV file is to be read.
struct Dialect {
  char delimiter = ',';
  bool header = false;
};

struct TableSketch {
  std::string path;
  Dialect dialect;
  std::vector<std::string> names;  // of the columns; without a header their numbers from 0
  std::vector<ColumnSketch> columns;
  int64_t rows = 0;

  // The column's number, or -1.
  int64_t Find(const std::string& name) const;
  bool Has(const std::string& name) const { return Find(name) >= 0; }
  // For messages: "column 4 (Age)".
  std::string NameOf(int64_t column) const;
};

// `dialect` says how the file is to be read, which may then have one column; nothing: find out. Throws Error (kData).
TableSketch ReadTableSketch(const std::string& path, std::optional<Dialect> dialect = std::nullopt);

// Finds out how the file is to be read. Throws Error (kData).
Dialect FindDialect(const std::string& path);

// Returns the delimiter in words, for messages: "comma".
std::string NameOfDelimiter(char delimiter);

}  // namespace lockstep
