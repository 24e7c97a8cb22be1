// BestSoFar: finds the best of the values that a metric takes, in the order in which a run reaches them.
//
// Promise: NaN is never the best value, and of equal values the first one is the best. All that names a run's best
// value or best checkpoint follows this rule: `runs`, `watch`, `compare`, the page and its report, RUN@best,
// checkpoint.keep_best and early_stopping (tests/best_test.py).
#pragma once

#include <cmath>
#include <optional>

namespace lockstep {

// Returns whether `value` is better than `than` by more than `margin`.
inline bool Beats(double value, double than, bool greater_is_better, double margin = 0) {
  return (greater_is_better ? value - than : than - value) > margin;
}

class BestSoFar {
 public:
  explicit BestSoFar(bool greater_is_better) : greater_is_better_(greater_is_better) {}

  // Returns whether `value`, which comes after all values so far, is the best of them all.
  bool Add(double value) {
    if (std::isnan(value) || (best_ && !Beats(value, *best_, greater_is_better_))) return false;
    best_ = value;
    return true;
  }

  // Returns the best value; nothing if there was none but NaN.
  const std::optional<double>& value() const { return best_; }

 private:
  bool greater_is_better_;
  std::optional<double> best_;
};

}  // namespace lockstep
