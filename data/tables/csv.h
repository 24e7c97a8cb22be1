// Reads CSV tables: rows of numbers and categories. One or more columns are the target.
//
// Promise: row i of the files, read one after the other, is sample i. The values that depend on the data (the texts of
// categories, the means and standard deviations of numbers) come from the training rows alone. Only the labels' texts
// come from all rows of the training files. When these values are used to read another file, the same row gives the
// same inputs and targets. If that file has a header, its columns may be in any order.
//
// An input holds the features in the order of the training files' columns. A column of numbers gives one number. A
// category column gives one number for each of its texts: 1 if the row has this text, and 0 otherwise.
//
// Invariants:
//   1. The files are mapped into memory. A sample takes four bytes for each of its columns, also for a category column,
//      because only Read() makes the ones and zeros.
//   2. If no value has to be fitted to the data, each file is parsed once.
//   3. Sums are computed in double. Numbers that are not standardised are parsed as float.
//
// what can fail -> what the caller sees -> the test that shows it (data/tables/csv_test.cc)
//   a file that is missing, empty, without rows, no text -> Error (kData) with path
//     -> Csv.RefusesAMissingFile, Csv.RefusesAnEmptyFile, CsvCells.*
//   a ragged row, a cell that is no finite number, one that is missing -> Error (kData) with path, line,
//     column and the column's name -> Csv.RefusesARaggedRow, Csv.RefusesACellThatIsNoNumber,
//     Csv.RefusesAMissingCell
//   a label that is no class number, out of range, none of the trained texts, of several labels one that
//     is not 0 or 1 -> the same -> Csv.RefusesALabel*
//   a column that the options name and no file has, one that they name twice, one without a number,
//     a category of too many texts -> Error (kData) that names it -> Csv.RefusesAColumn*,
//     Csv.RefusesTooManyCategories
//   training files of different headers, other files that lack a column or have an unknown one -> Error
//     (kData) with path and column -> Csv.RefusesAnotherHeader, Csv.RefusesAFileThatLacksAColumn
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

// What the training rows held in one feature's column.
struct CsvColumn {
  std::string name{};  // in the header; empty: the files have none
  double mean = 0;     // of a number
  double std = 1;      // of a number, over the rows' number; 1 for a constant column
  std::vector<std::string> categories{};  // ascending; empty: a column of numbers
};

struct CsvOptions {
  std::vector<std::string> files;  // one data set in this order
  char delimiter = ',';
  bool header = false;  // every file's first line holds names
  // The label columns by name, in the targets' order; empty: label_column and label_columns.
  std::vector<std::string> labels{};
  int label_column = -1;  // the first, from 0; negative ones count from the end
  int64_t label_columns = 1;
  // By name, or without a header by number from 0.
  std::vector<std::string> ignore{};    // columns that are left out
  std::vector<std::string> category{};  // columns of categories
  bool mean_if_missing = false;  // a cell that says nothing is the mean, or a category of its own
  bool standardize = false;      // (number - mean) / std
  float scale = 1;               // every other number is multiplied by it
  Task task = Task::kClassification;
  bool label_names = false;                // labels are texts
  std::vector<std::string> class_names{};  // in the order of the classes; empty: the files'
  int64_t classes = 0;                     // 0: the greatest label + 1
  // What the training rows held, in the order of the features; empty: find out.
  std::vector<CsvColumn> columns{};
  // The numbers of the training rows among so many, ascending; null: all.
  std::function<std::vector<int64_t>(int64_t rows)> training_rows{};
  // Of one input; 0: the files are the training files. Else nothing is fitted to them, and with a header
  // their columns are matched by name.
  int64_t features = 0;
  bool label_optional = false;  // all label columns, or some labels, may lack

  int64_t LabelCount() const {
    return labels.empty() ? label_columns : static_cast<int64_t>(labels.size());
  }
};

struct CsvTable {
  std::shared_ptr<const Dataset> dataset;
  // What was fitted, for the options of other files; empty where there is nothing to know.
  std::vector<CsvColumn> columns;
  std::vector<std::string> labels;  // the label columns' names; empty: the files have no header
};

// Holds its samples in memory. spec().class_names are the labels' texts. Throws Error (kData), and what
// training_rows throws.
CsvTable ReadCsv(const CsvOptions& options);

}  // namespace lockstep
