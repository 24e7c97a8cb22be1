// PredictionTable: predictions as a user sends them on, a row for each sample, and the files that hold them.
//
// Promise: a cell is made when it is written, so that a table takes no memory for its texts. CSV cells are in quotes
// where they need them, as Python's csv module and pandas read them. A line of JSON is one object; a number that is not
// finite is null there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/files/atomic_file.h"

namespace lockstep {

struct PredictionColumn {
  // The cells' type in JSON: texts; numbers, also nan and inf; or cells copied from a table, of which those that look
  // like numbers are numbers.
  enum class Kind : uint8_t { kText, kNumber, kCopied };

  std::string name;
  Kind kind = Kind::kText;
  std::function<std::string(int64_t row)> cell;
};

struct PredictionTable {
  int64_t rows = 0;
  std::vector<PredictionColumn> columns;
};

// Write the table with the names of its columns.
void WriteCsv(const PredictionTable& table, const AppendBytes& append);
void WriteJsonLines(const PredictionTable& table, const AppendBytes& append);

}  // namespace lockstep
