// Reads CSV tables: rows of numbers and categories. One or more columns are the target.
//
// Promise: row i of the files, read one after the other, is sample i. The values that depend on the data (the texts of
// categories; the means, deviations and quantiles of numbers; the set of columns that lack values) come from the
// training rows alone. Labels are an exception: their texts and the number of classes come from all rows of the
// training files. When these values are used to read another file, the same row gives the same inputs and targets. If
// that file has a header, its columns may be in any order.
//
// An input holds the features in the order of the training files' columns (CsvColumn::inputs()):
//   a number    the number, scaled; then, if the column lacks a number in a training row and
//               CsvOptions::missing_indicator is set, 1 if this row lacks the number and 0 otherwise
//   a date      the number of days since 1970-01-01, treated like the number of a column of numbers; then the sine and
//               the cosine of the position in the year, of the position in the week and, if a training row has a time
//               of day, of the position in the day (data/tables/csv_date.h)
//   a category  one-hot numbers: for each text of the column that is not rare (CsvOptions::category_min_rows), 1 if the
//               row has this text and 0 otherwise; then, if the column has rare texts, 1 if the row has any other text
//               and 0 otherwise
//
// Invariants:
//   1. The files are memory-mapped or, if they are compressed, unpacked into memory (data/tables/csv_bytes.h). A sample
//      takes four bytes for each number of its input. A category column is an exception: it takes only four bytes of a
//      sample, from which Read() makes the column's ones and zeros.
//   2. If no value has to be fitted to the data, each file is parsed once, or twice if it may have numbers such as
//      "1,5" whose decimal sign must be found. The scalings ROBUST and QUANTILE take eight bytes for each number of the
//      training rows while they are fitted.
//   3. Sums are computed in double. Numbers that are not scaled are parsed as float.
//
// what can fail -> what the caller sees -> the test that shows it (data/tables/csv_test.cc)
//   a file is missing, empty, without rows, or not a text -> Error (kData) with path
//     -> Csv.RefusesAMissingFile, Csv.RefusesAnEmptyFile, CsvCells.*
//   a row is ragged, a cell is missing or not a finite number -> Error (kData) with path, line, column and the
//     column's name -> Csv.RefusesARaggedRow, Csv.RefusesACellThatIsNoNumber, Csv.RefusesAMissingCell
//   a date is not an ISO date -> Error (kData) with path, line, column and the column's name
//     -> Csv.RefusesACellThatIsNoDate
//   a label is not a class number, is out of range, or is not one of the trained texts; or one of several labels is not
//     0 or 1 -> Error (kData) with path, line, column and the column's name -> Csv.RefusesALabel*
//   the options name a column that no file has, or name a column twice; a column of numbers holds none; a category has
//     too many texts, or only rare ones -> Error (kData) that names the column -> Csv.RefusesAColumn*,
//     Csv.RefusesTooMany*
//   QUANTILE would keep too many numbers -> Error (kData) that says what to change
//     -> Csv.RefusesQuantilesOfTooManyColumns
//   training files have different headers, or another file lacks a column or has an unknown one -> Error (kData) with
//     path and column -> Csv.RefusesAnotherHeader, Csv.RefusesAFileThatLacksAColumn
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/tables/csv_options.h"

namespace lockstep {

struct CsvTable {
  std::shared_ptr<const Dataset> dataset;
  // The fitted values, for CsvOptions::columns of later calls that read other files; empty if nothing was fitted.
  std::vector<CsvColumn> columns;
  std::vector<CsvDecimal> label_decimals;  // for CsvOptions::label_decimals of later calls
  // The names of the label columns; empty if the files have no header.
  std::vector<std::string> labels;
};

// Reads options.files. The returned data set holds the samples in memory, and its spec().class_names are the labels'
// texts. Throws Error (kData), and any exception that options.training_rows throws.
CsvTable ReadCsv(const CsvOptions& options);

}  // namespace lockstep
