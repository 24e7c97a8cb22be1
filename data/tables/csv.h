// Reads CSV tables: rows of numbers and categories. One or more columns are the target.
//
// Promise: row i of the files, read one after the other, is sample i. The values that depend on the data (the texts of
// categories, the means, deviations and quantiles of numbers, which columns lack values) come from the training rows
// alone. Only the labels' texts come from all rows of the training files. When these values are used to read another
// file, the same row gives the same inputs and targets. If that file has a header, its columns may be in any order.
//
// An input holds the features in the order of the training files' columns (CsvColumn::inputs()):
//   a number    the number, scaled; then, if a training row lacked it and missing_indicator asks for it, 1 where it is
//               missing and 0 elsewhere
//   a date      the days since 1970-01-01 as a number, with what belongs to one; the place in the year and in the week
//               as sine and cosine; that in the day, too, if a training row had a time (data/tables/csv_date.h)
//   a category  for each of its texts 1 if the row has it, and 0 otherwise; then the same for the rare texts together,
//               if there are any
//
// Invariants:
//   1. The files are mapped into memory, or unpacked into it (data/tables/csv_bytes.h). A sample takes four bytes for
//      each number of its input, but for a category column only four, because only Read() makes the ones and zeros.
//   2. If no value has to be fitted to the data, each file is parsed once. ROBUST and QUANTILE take eight bytes for each
//      number of the training rows while they are fitted.
//   3. Sums are computed in double. Numbers that are not scaled are parsed as float.
//
// what can fail -> what the caller sees -> the test that shows it (data/tables/csv_test.cc)
//   a file is missing, empty, without rows, or not a text -> Error (kData) with path
//     -> Csv.RefusesAMissingFile, Csv.RefusesAnEmptyFile, CsvCells.*
//   a row is ragged, a cell is missing or not a finite number -> Error (kData) with path, line, column and the
//     column's name -> Csv.RefusesARaggedRow, Csv.RefusesACellThatIsNoNumber, Csv.RefusesAMissingCell
//   a date is not an ISO date -> the same -> Csv.RefusesACellThatIsNoDate
//   a label is not a class number, is out of range, or is not one of the trained texts; or one of several labels is not
//     0 or 1 -> the same -> Csv.RefusesALabel*
//   the options name a column that no file has, or name a column twice; a column has no number; a category has too many
//     texts, or rare ones alone -> Error (kData) that names the column -> Csv.RefusesAColumn*, Csv.RefusesTooMany*
//   QUANTILE would keep too many numbers -> Error (kData) with the cure -> Csv.RefusesQuantilesOfTooManyColumns
//   training files have different headers, or another file lacks a column or has an unknown one -> Error (kData) with
//     path and column -> Csv.RefusesAnotherHeader, Csv.RefusesAFileThatLacksAColumn
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

// How numbers are scaled.
enum class CsvScaling : uint8_t { kNone, kStandard, kRobust, kQuantile };

// What a column of dates held.
enum class CsvDates : uint8_t { kNone, kDays, kTimes };

// The values that were fitted to the training rows of one feature's column.
struct CsvColumn {
  std::string name{};  // the name in the header; empty: the files have no header
  // For a column of numbers, and for the days of a column of dates. What is not asked for has no meaning.
  double mean = 0;
  double std = 1;     // the standard deviation of the population; 1 for a constant column
  double median = 0;  // for CsvScaling::kRobust and kQuantile
  double quartile_range =
      1;  // for kRobust: the 75th less the 25th percentile; 1 if they are the same
  // For CsvScaling::kQuantile, from the least value to the greatest.
  std::vector<double> quantiles{};
  bool missing_indicator = false;  // whether a number of the input says where the value is missing
  CsvDates dates = CsvDates::kNone;
  // For a column of categories: the texts in ascending order, without the rare ones, and whether there are rare ones.
  std::vector<std::string> categories{};
  bool has_rare = false;

  bool is_category() const { return has_rare || !categories.empty(); }
  int64_t inputs() const;  // how many numbers of an input the column becomes
};

// Returns the features of each column of categories.
std::vector<FeatureRange> FeaturesOfCategories(const std::vector<CsvColumn>& columns);

struct CsvOptions {
  std::vector<std::string> files;  // the files of one data set, in this order
  char delimiter = ',';
  bool header = false;  // whether the first line of every file holds the columns' names
  // The names of the label columns, in the order of the targets. If it is empty, label_column and label_columns say
  // which columns they are.
  std::vector<std::string> labels{};
  int label_column = -1;  // the first label column, from 0; a negative number counts from the end
  int64_t label_columns = 1;
  // Columns are given by their name, or by their number from 0 if there is no header.
  std::vector<std::string> ignore{};    // columns that are left out
  std::vector<std::string> category{};  // columns of categories
  std::vector<std::string> date{};      // columns of dates
  int64_t category_min_rows = 1;        // a text that fewer training rows have is rare
  // Whether a missing number becomes the mean, or with kRobust and kQuantile the median, and a missing text a category
  // of its own.
  bool mean_if_missing = false;
  bool missing_indicator = false;  // whether columns that lack values get a number that says where
  CsvScaling scaling = CsvScaling::kNone;
  float scale = 1;  // the factor for numbers that are not scaled otherwise
  Task task = Task::kClassification;
  bool label_names = false;  // whether labels are texts
  // In the order of the classes; empty: the texts in the files.
  std::vector<std::string> class_names{};
  int64_t classes = 0;  // the number of classes; 0: the greatest label + 1
  // The values that were fitted to the training rows, in the order of the features. If it is empty, they are computed.
  std::vector<CsvColumn> columns{};
  // Returns the numbers of the training rows, in ascending order, if there are `rows` rows. null: all rows are for
  // training.
  std::function<std::vector<int64_t>(int64_t rows)> training_rows{};
  // The number of features of one input. 0: the files are the training files. Otherwise nothing is fitted to the files,
  // and if they have a header, their columns are matched by name.
  int64_t features = 0;
  bool label_optional = false;  // whether all label columns, or some labels, may be missing

  int64_t LabelCount() const {
    return labels.empty() ? label_columns : static_cast<int64_t>(labels.size());
  }
};

struct CsvTable {
  std::shared_ptr<const Dataset> dataset;
  // The fitted values, for the options with which other files are read; empty if nothing was fitted.
  std::vector<CsvColumn> columns;
  // The names of the label columns; empty: the files have no header.
  std::vector<std::string> labels;
};

// Reads the files. The data set holds its samples in memory, and its spec().class_names are the labels' texts. Throws
// Error (kData), and any exception of training_rows.
CsvTable ReadCsv(const CsvOptions& options);

}  // namespace lockstep
