// CsvOptions: the options for reading a CSV table, and the values that were fitted to each of its columns
// (data/tables/csv.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/tables/csv_number.h"

namespace lockstep {

// The ways in which numbers can be scaled (data/tables/csv_scaling.h).
enum class CsvScaling : uint8_t { kNone, kStandard, kRobust, kQuantile };

// The dates that a column held: none, days, or days with times.
enum class CsvDates : uint8_t { kNone, kDays, kTimes };

// Returns the number of sines and cosines that an input holds for a column with the dates `dates`.
int64_t DateCircleNumbers(CsvDates dates);

// The values that were fitted to the training rows of one feature column.
struct CsvColumn {
  std::string name{};  // the name in the header; empty: the files have no header
  // The members from `mean` to `quantiles` are for a column of numbers, or for the days of a column of dates. A member
  // is ignored if neither the scaling nor the replacement of missing numbers uses it.
  double mean = 0;
  double std = 1;             // the standard deviation of the population; 1 for a constant column
  double median = 0;          // for CsvScaling::kRobust and kQuantile
  double quartile_range = 1;  // for kRobust: 75th percentile - 25th percentile; 1 if they are equal
  // The quantiles for CsvScaling::kQuantile, from the least value to the greatest.
  std::vector<double> quantiles{};
  bool missing_indicator = false;  // whether the column has a 0/1 indicator of missing values
  CsvDecimal decimal = CsvDecimal::kPoint;
  CsvDates dates = CsvDates::kNone;
  // For a column of categories: the texts in ascending order, without the rare ones, and whether there are rare ones.
  std::vector<std::string> categories{};
  bool has_rare = false;

  bool is_category() const { return has_rare || !categories.empty(); }
  int64_t inputs() const;  // the number of elements that an input has for this column
};

// Returns a range for each column of categories: the elements that an input has for this column.
std::vector<FeatureRange> FeaturesOfCategories(const std::vector<CsvColumn>& columns);

struct CsvOptions {
  std::vector<std::string> files;  // the files of one data set, in this order
  char delimiter = ',';
  bool header = false;  // whether the first line of every file holds the columns' names
  // The names of the label columns, in the order of the targets. If `labels` is empty, label_column and label_columns
  // select the label columns.
  std::vector<std::string> labels{};
  int label_column = -1;  // the first label column, from 0; a negative number counts from the end
  int64_t label_columns = 1;
  // The next three members give columns by their names or, if there is no header, by their numbers from 0.
  std::vector<std::string> ignore{};    // columns that are left out
  std::vector<std::string> category{};  // columns of categories
  std::vector<std::string> date{};      // columns of dates
  int64_t category_min_rows = 1;        // a text in fewer training rows than this is rare
  // Whether missing values are replaced: a missing number or date by the mean (with kRobust and kQuantile by the
  // median), and a missing text of a category column by an additional category, the empty text.
  bool mean_if_missing = false;
  bool missing_indicator = false;  // whether columns with missing numbers or dates get an indicator
  CsvScaling scaling = CsvScaling::kNone;
  float scale = 1;  // the factor for numbers if `scaling` is kNone
  std::optional<CsvDecimal>
      decimal{};  // of all columns; nullopt: that of each column is found from its cells
  Task task = Task::kClassification;
  bool label_names = false;  // whether labels are texts
  // The labels' texts in the order of the classes; empty: the texts in the files, in ascending order.
  std::vector<std::string> class_names{};
  int64_t classes = 0;  // the number of classes; 0: the greatest label + 1
  // The values that were fitted to the training rows, in the order of the features. If `columns` is empty, the values
  // are computed from the training rows.
  std::vector<CsvColumn> columns{};
  std::vector<CsvDecimal> label_decimals{};  // of each label column, like `columns`; empty: kPoint
  // Returns the indices of the training rows among `rows` rows, in ascending order. null: all rows are training rows.
  std::function<std::vector<int64_t>(int64_t rows)> training_rows{};
  // Returns the indices of the rows that are held back for validation. Called after training_rows;
  // null: none are. `held_back` says in a remark what these rows are.
  std::function<std::vector<int64_t>()> held_back_rows{};
  std::string held_back{"held back"};
  // The number of features of one input. 0: the files are the training files. Otherwise nothing is fitted to the files,
  // and the columns of files with a header are found by their names.
  int64_t features = 0;
  bool label_optional = false;  // whether label columns or single labels may be missing

  DecimalRule decimal_rule() const { return {.delimiter = delimiter, .given = decimal}; }
  // Returns whether the labels are numbers, and not the names of classes.
  bool HasNumberLabels() const { return task != Task::kClassification || !label_names; }
  int64_t LabelCount() const {
    return labels.empty() ? label_columns : static_cast<int64_t>(labels.size());
  }
};

}  // namespace lockstep
