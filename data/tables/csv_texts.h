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

// Returns for each of the columns `names` the texts of all rows of the files that `options` describe. The names are
// numbers from 0 if there is no header. `field` is the option that asks for the columns, for error messages. Throws
// Error (kData).
std::vector<std::vector<std::string>> ReadCsvTexts(const CsvOptions& options,
                                                   const std::vector<std::string>& names,
                                                   std::string_view field);

// Returns the texts of the first label column of training files, one for each row. Throws Error (kData).
std::vector<std::string> ReadCsvLabels(const CsvOptions& options);

struct CsvTextColumn {
  std::string name;
  std::vector<std::string> texts;  // one for each row
};

// A file with a header, of which nothing else is known, such as a sample submission.
struct CsvTextTable {
  char delimiter = ',';
  std::vector<CsvTextColumn> columns;
};

// Reads all columns of a file with a header, with the delimiter that its first rows suggest. Throws Error (kData).
CsvTextTable ReadCsvTextTable(const std::string& path);

}  // namespace lockstep
