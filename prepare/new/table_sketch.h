// TableSketch: describes a CSV file: its delimiter, whether it has a header, and a sketch of each column.
//
// Promise: the cells are those of data/tables/csv_cells.h, and the file may be compressed (data/tables/csv_bytes.h).
// The beginning of the file is read to find the delimiter and the header, and then the whole file is read once, or
// twice if it may have numbers such as "1,281.5" whose decimal sign must be found. The sketches of all columns together
// keep at most 4,000,000 different texts or, for more than 20,000 columns, at most 200 texts of each column.
//
// How: the delimiter is that of FindDelimiter() (data/tables/csv_delimiter.h). The first row is a header in three
// cases: it has a text in a column that has only numbers in the next rows; it has only texts, which all differ, and
// none of them occurs again in its column in the next rows; or its cells are 0, 1, 2 and so on.
//
// what can fail -> what the caller sees -> the test that shows it (prepare/new/new_test.cc)
//   a file is missing, empty, without rows, not text, or compressed in an unreadable way; a row has another number of
//   cells; two columns have one name; there is only one column
//     -> Error (kData) with path, line and remedy -> TableSketch.Refuses*
#pragma once

#include <cstdint>
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

  DecimalRule rule() const { return {.delimiter = dialect.delimiter}; }
  // Returns the column's number, from 0, or -1 if there is no such column.
  int64_t Find(const std::string& name) const;
  bool Has(const std::string& name) const { return Find(name) >= 0; }
  // Returns a column's name for messages: "column 4 (Age)".
  std::string NameOf(int64_t column) const;
};

// Reads a CSV file. Throws Error (kData), also if the file has only one column.
TableSketch ReadTableSketch(const std::string& path);

// Reads the test file of a training file. It has a header if `train` has one, a delimiter of its own, and the decimal
// signs that `train` has, as for predictions. Throws Error (kData).
TableSketch ReadTestSketch(const std::string& path, const TableSketch& train);

// Reads a sample submission: a file with a header and a delimiter of its own. Throws Error (kData).
TableSketch ReadSampleSketch(const std::string& path);

}  // namespace lockstep
