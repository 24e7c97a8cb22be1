// PredictionTable: predictions as a user sends them on, a row for each sample, and the files that hold them.
//
// Promise: a cell is made when it is written, so that a table takes no memory for its texts. CSV cells are in quotes where
// they need them, as Python's csv module and pandas read them. A line of JSON is one object; a number that is not finite
// is null there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/files/atomic_file.h"

namespace lockstep {

struct PredictionColumn {
  std::string name;
  bool is_number = false;  // whether each cell is a number, or nan or inf
  std::function<std::string(int64_t row)> cell;
};

struct PredictionTable {
  int64_t rows = 0;
  std::vector<PredictionColumn> columns;
};

// Write the table with the names of its columns. A text that is a number in JSON becomes one there.
void WriteCsv(const PredictionTable& table, const AppendBytes& append);
void WriteJsonLines(const PredictionTable& table, const AppendBytes& append);

}  // namespace lockstep
