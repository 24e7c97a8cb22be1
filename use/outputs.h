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
  bool have_names = false;  // whether the data gives these names; otherwise they are "0", "1", ...
  // On the CPU, float64 [samples, names]: the probability of each class or label, or the regression outputs. If
  // best_only, float64 [samples, 2]: the index of the most probable class (the first one if several are equally
  // probable) and its probability, as BestOf() of use/predict.h returns them.
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

// Returns the prediction columns of a file, without the samples' names. For classes the first column is `label`, the
// most probable class. If best_only, the second column is `probability`, the probability of that class. Otherwise one
// column for each class follows; it is named after the class, or, if the classes have no names, probability_0,
// probability_1, ... For labels there is one column for each label: `probability` if there is only one label, and
// otherwise probability_0, probability_1, ... For regression there is one column for each target: `value` if there is
// only one target, and otherwise value_0, value_1, ...
std::vector<PredictionColumn> ColumnsOf(const Outputs& outputs);

}  // namespace lockstep
