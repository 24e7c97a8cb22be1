// Outputs: what a run predicts of each sample, and how that is written.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "use/prediction_table.h"

namespace lockstep {

struct Outputs {
  Task task = Task::kClassification;
  // The names of the classes, labels or numbers, in order.
  std::vector<std::string> names{};
  bool have_names = false;  // whether the user gave these names; otherwise they are "0", "1", ...
  // On the CPU, float64 [samples, names]: the probability of each class or label, or the numbers. With best_only
  // float64 [samples, 2]: the most probable class, the first of several, and its probability (BestOf() of
  // use/predict.h).
  at::Tensor values{};
  bool best_only = false;
};

// Returns the names of `count` classes, labels or numbers: `given`, or their numbers.
std::vector<std::string> NamesOf(const std::vector<std::string>& given, int64_t count);

// The name of the most probable class.
PredictionColumn LabelColumn(const Outputs& outputs, const std::string& name);
// The probability of class or label `index`, with six decimals.
PredictionColumn ProbabilityColumn(const Outputs& outputs, const std::string& name, int64_t index);
// 1 if the probability of label `index` is at least a half, otherwise 0.
PredictionColumn YesOrNoColumn(const Outputs& outputs, const std::string& name, int64_t index);
// Number `index`, with all digits that a float32 holds.
PredictionColumn NumberColumn(const Outputs& outputs, const std::string& name, int64_t index);

// Returns the columns that predictions have beside the samples' names. For classes they are `label` and, with
// best_only, `probability`, which is that of this class; otherwise the probability of each class under its name, or
// under probability_0, ... For labels they are `probability`, or probability_0, ...; for numbers `value`, or value_0,
// and so on. ... ...
std::vector<PredictionColumn> ColumnsOf(const Outputs& outputs);

}  // namespace lockstep
