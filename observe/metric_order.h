// GreaterIsBetter(): which of two values of a metric is the better one.
#pragma once

#include <string_view>

namespace lockstep {

// Whether more is better of the metric `name` (observe/metrics.h), such as "accuracy".
inline bool GreaterIsBetter(std::string_view name) {
  return name == "accuracy" || name == "top5" || name == "f1" || name == "auc";
}

}  // namespace lockstep
