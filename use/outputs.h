// Outputs: the predictions of a run for some samples, and the columns in which they are written.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "use/prediction_table.h"

namespace lockstep {

struct Outputs {
  Task task = Task::kClassification;
  // The names of the classes, labels or regression targets, in order.
  std::vector<std::string> names{};
  bool have_names = false;  // whether the user gave the names; otherwise they are "0", "1", ...
  // On the CPU, float64 [samples, names]: the probability of each class or label, or the regression outputs. If
  // best_only, float64 [samples, 2]: the index of the most probable class (the first of several) and its probability,
  // as BestOf() of use/predict.h returns them.
  at::Tensor values{};
  bool best_only = false;
};

// Returns the names of `count` classes, labels or regression targets: `given`, or "0", "1", ... if `given` is empty.
std::vector<std::string> NamesOf(const std::vector<std::string>& given, int64_t count);

// Returns a column with the name of the most probable class.
PredictionColumn LabelColumn(const Outputs& outputs, const std::string& name);
// Returns a column with the probability of class or label `index`, with six decimals.
PredictionColumn ProbabilityColumn(const Outputs& outputs, const std::string& name, int64_t index);
// Returns a column with 1 if the probability of label `index` is at least 0.5, and 0 otherwise.
PredictionColumn YesOrNoColumn(const Outputs& outputs, const std::string& name, int64_t index);
// Returns a column with regression output `index`, with all digits of a float32.
PredictionColumn NumberColumn(const Outputs& outputs, const std::string& name, int64_t index);

// Returns the prediction columns of a file, without the samples' names. For classes they are `label` and either, if
// best_only, `probability`, the probability of that class, or one column for each class, named after the class, or
// probability_0, probability_1, ... if classes have no names. For labels there is one column for each label, and for
// regression one for each target. A single one is called `probability` or `value`; several are called probability_0,
// ... or value_0, ...
std::vector<PredictionColumn> ColumnsOf(const Outputs& outputs);

}  // namespace lockstep
