// Reads columns of CSV files as texts, without parsing them as numbers. An example is a column of ids that are written
// beside predictions.
//
// Promise: row i of the files, read one after the other, is sample i of ReadCsv() (data/tables/csv.h).
//
// what can fail -> what the caller sees -> the test that shows it (data/tables/csv_test.cc)
//   no such column, a ragged row, a file without rows -> Error (kData) with path -> CsvTexts.Refuses*
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/tables/csv_options.h"

namespace lockstep {

struct CsvTextOptions {
  std::vector<std::string> files;
  char delimiter = ',';
  bool header = true;  // whether the first line of every file holds the columns' names
  // The columns to read, by name or, if there is no header, by number from 0; empty: all columns of a file with a
  // header.
  std::vector<std::string> columns{};
  std::string_view field = "";  // the option that asks for the columns, for error messages
};

struct CsvTextColumn {
  std::string name;
  std::vector<std::string> texts;  // one for each row
};

// Returns the columns in the order of options.columns. Throws Error (kData).
std::vector<CsvTextColumn> ReadCsvTexts(const CsvTextOptions& options);

// Returns the texts of the first label column of training files, one for each row. Throws Error (kData).
std::vector<std::string> ReadCsvLabels(const CsvOptions& options);

}  // namespace lockstep
