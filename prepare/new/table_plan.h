// TablePlan: the labels and the task for a table, and how each of its columns is used (prepare/new/plan_table.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prepare/new/table_sketch.h"

namespace lockstep {

enum class LearnTask { kClassification, kMultiLabel, kRegression };

struct ColumnPlan {
  enum class Kind { kNumber, kDate, kCategory, kLabel, kIgnored };
  std::string name;
  Kind kind = Kind::kNumber;
  std::string reason;  // why the column is left out
  std::string
      remark;  // for a category: why it is one, or which values it has; empty: nothing to say
  int64_t categories = 0;  // for a category: number of different values
  bool has_times = false;  // for dates: whether there are times of day
  int64_t missing = 0;     // cells without a value in the training file
};

struct TablePlan {
  LearnTask task = LearnTask::kClassification;
  std::string task_reason;
  std::vector<std::string> labels;
  std::string label_reason;
  bool label_names = false;  // whether the classes are texts, or numbers other than 0, 1, 2 ...
  // For classification: the number of classes, and the fractions of rows of the rarest and of the most common class.
  // For several labels: `rarest` is the fraction of rows of the rarest label.
  int64_t classes = 0;
  double rarest = 0;
  double commonest = 0;
  std::vector<ColumnPlan> columns;  // one for each column of the file, in its order
  int64_t rows = 0;
  int64_t inputs = 0;             // number of inputs that a row gives the model
  std::string missing;            // which cells lack a value, in words; empty: none
  int64_t numbers = 0;            // number of these inputs that are numbers or belong to dates
  int64_t category_min_rows = 1;  // data.csv.category_min_rows
  std::string group;              // column whose equal values rows must share a fold; empty: none
  std::string group_reason;       // why, in words
  bool has_dates = false;         // whether a column holds dates
  std::vector<std::string> spellings;  // how the numbers of columns are read, for the config
  std::vector<std::string> notes;      // remarks for the user
};

struct TablePlanRequest {
  const TableSketch& train;
  const TableSketch* test = nullptr;
  const TableSketch* submission = nullptr;
  std::vector<std::string> labels{};             // the user's labels; empty: PlanTable() chooses
  std::optional<LearnTask> task = std::nullopt;  // the user's task; nothing: PlanTable() chooses
  double held_back = 0;                          // fraction of the rows held back for validation
};

}  // namespace lockstep
