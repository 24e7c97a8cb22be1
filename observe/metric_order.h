// Says which of two values of a metric is the better one.
#pragma once

#include <string_view>

namespace lockstep {

// Returns whether more is better of the metric `name` (observe/metrics.h), such as "accuracy".
inline bool GreaterIsBetter(std::string_view name) {
  return name == "accuracy" || name == "top5" || name == "f1" || name == "auc" || name == "iou";
}

// Returns whether `value` is better than `than`, of the figure that log.jsonl calls `name`: a metric of the validation
// begins with "val_", and of all others, such as "train_loss", less is better.
inline bool IsBetter(std::string_view name, double value, double than) {
  constexpr std::string_view kValidation = "val_";
  const bool greater =
      name.starts_with(kValidation) && GreaterIsBetter(name.substr(kValidation.size()));
  return greater ? value > than : value < than;
}

}  // namespace lockstep
