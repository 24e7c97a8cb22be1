// PredictionTable: a table of predictions with one row for each sample, and functions that write it as CSV or JSON
// lines.
//
// Promise: a cell is made only when it is written, so the texts of a table take no memory. CSV cells are quoted where
// necessary, so that Python's csv module and pandas can read them. A JSON line is one object, in which numbers that are
// not finite are null.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/files/atomic_file.h"

namespace lockstep {

struct PredictionColumn {
  // The type of the cells in JSON: kText: strings; kNumber: numbers, which may be nan or inf; kCopied: cells copied
  // from an input table, which become numbers if they are valid JSON numbers.
  enum class Kind : uint8_t { kText, kNumber, kCopied };

  std::string name;
  Kind kind = Kind::kText;
  std::function<std::string(int64_t row)> cell;
  // Whom the name belongs to. If two columns have one name, the later kind of owner gives way, and its name gets a
  // prefix: kProgram: never; kClass: "probability_"; kInput: "input_".
  enum class Owner : uint8_t { kProgram, kClass, kInput };
  Owner owner = Owner::kProgram;
};

struct PredictionTable {
  int64_t rows = 0;
  std::vector<PredictionColumn> columns;
};

// Makes the names of the columns differ, so that each is one column of a CSV file and one key of a JSON object. Returns
// for each column that got another name a line that says so.
std::vector<std::string> MakeNamesDiffer(std::vector<PredictionColumn>& columns);

// WriteCsv() writes the column names, and then the rows. WriteJsonLines() writes one object for each row.
void WriteCsv(const PredictionTable& table, char delimiter, const AppendBytes& append);
void WriteJsonLines(const PredictionTable& table, const AppendBytes& append);

}  // namespace lockstep
