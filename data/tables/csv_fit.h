// CsvFit: the values that Lockstep computes from the training files of a CSV table, such as means and the texts of
// categories.
#pragma once

#include <string>
#include <vector>

#include "data/tables/csv.h"
#include "data/tables/csv_files.h"

namespace lockstep {

struct CsvFit {
  std::vector<CsvColumn> columns;    // as in CsvTable
  std::vector<std::string> classes;  // the labels' texts, of all rows, in the order of the classes
};

// Throws Error (kData) where the files are not for training and the options leave out what only training
// files can tell.
void RequireFitted(const CsvOptions& options);

// What the options say, and what they leave out as the files have it. Throws Error (kData), also
// where the options are for other columns.
CsvFit FitCsv(const CsvOptions& options, const CsvFiles& files);

}  // namespace lockstep
