// CsvFit: the values that Lockstep computes from the training files of a CSV table, such as means and the texts of
// categories.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "data/tables/csv_files.h"
#include "data/tables/csv_options.h"

namespace lockstep {

struct CsvFit {
  std::vector<CsvColumn> columns;    // the fitted values of each feature column (CsvTable::columns)
  std::vector<std::string> classes;  // the labels' texts from all rows, in the order of the classes
  std::vector<CsvDecimal> label_decimals;  // of each label column; empty: kPoint
  std::vector<std::string> remarks;  // lines that tell how columns are read, for Dataset::Remarks()

  // For each file that is no training file, the decimal sign of each of its columns; empty: DecimalOf(). It is another
  // one if the file's numbers cannot have the sign that the column has in training.
  std::vector<std::vector<CsvDecimal>> file_decimals;

  // Returns the decimal sign in training of a column of numbers or of a label column.
  CsvDecimal DecimalOf(const CsvRole& role) const {
    const auto index = static_cast<size_t>(role.index);
    if (role.kind == CsvRole::Kind::kLabel) {
      return index < label_decimals.size() ? label_decimals[index] : CsvDecimal::kPoint;
    }
    return index < columns.size() ? columns[index].decimal : CsvDecimal::kPoint;
  }
};

// Throws Error (kData) if the files are not training files and the options lack a value that can only be fitted to
// training files.
void RequireFitted(const CsvOptions& options);

// Returns the fitted values. Takes those that the options hold, and computes the others from the files. Throws Error
// (kData), for example if options.columns do not match the columns of the files.
CsvFit FitCsv(const CsvOptions& options, const CsvFiles& files);

}  // namespace lockstep
