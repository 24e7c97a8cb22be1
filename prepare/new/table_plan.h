// TablePlan: what is to be learnt from a table, and what becomes of each of its columns (prepare/new/plan_table.h).
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
  std::string reason;      // why it is left out
  int64_t categories = 0;  // of a category: how many texts there are
  bool has_times = false;  // of dates: whether there are times of the day
  int64_t missing = 0;     // cells without a value in the training file
};

struct TablePlan {
  LearnTask task = LearnTask::kClassification;
  std::string task_reason;
  std::vector<std::string> labels;
  std::string label_reason;
  bool label_names = false;  // whether the classes are texts, or numbers other than 0, 1, 2 ...
  // For classes: their number, and the least and the greatest share of the rows that one has.
  int64_t classes = 0;
  double rarest = 0;
  double commonest = 0;
  std::vector<ColumnPlan> columns;  // in the order of the file
  int64_t rows = 0;
  int64_t inputs = 0;              // numbers that a row becomes
  std::string missing;             // which cells lack a value, in words; empty: none
  bool has_dates = false;          // whether a column holds dates
  std::vector<std::string> notes;  // what the user should know
};

struct TablePlanRequest {
  const TableSketch& train;
  const TableSketch* test = nullptr;
  const TableSketch* submission = nullptr;
  std::vector<std::string> labels{};             // those that the user names; empty: to be found
  std::optional<LearnTask> task = std::nullopt;  // the user's; nothing: to be found
  double held_back = 0;                          // share of the rows that is not trained on
};

}  // namespace lockstep
