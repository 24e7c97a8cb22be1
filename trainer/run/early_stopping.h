// EarlyStopping: ends a run whose validation metric has not improved for a number of evaluations (config field
// early_stopping).
//
// Promise: all ranks make the same decision, because they have the same metrics. The best value and the number of
// evaluations since then are part of the run's state, so a resumed run ends at the epoch at which it would have ended
// without the interruption. If the run is resumed with another metric, BeginAnew() is called, so that no value of one
// metric is compared with a value of another. If a run that was ended early is started again, it makes no more steps
// until early_stopping in the config is relaxed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/state_tree.h"
#include "config/schema/config.pb.h"
#include "observe/metrics.h"

namespace lockstep {

class EarlyStopping {
 public:
  // Keeps a reference to `config`.
  explicit EarlyStopping(const config::EarlyStopping& config) : config_(config) {}

  // Counts the evaluation at the end of `epoch` (counted from 1). `metrics` are the results of this evaluation. Must be
  // called for each evaluation at the end of an epoch.
  void OnEvaluation(const std::vector<Metric>& metrics, int64_t epoch);

  // Returns whether the run must end because of early_stopping.
  bool is_over() const;
  // Returns in words why the run must end; empty if is_over() is false.
  std::string why() const;

  // Forgets all evaluations so far, because they were about another metric or other samples.
  void BeginAnew();

  void AddTo(StateTree& state);

 private:
  const config::EarlyStopping& config_;
  double best_ = 0;
  int64_t best_epoch_ = 0;           // the epoch of best_; 0: there is no value yet
  int64_t without_improvement_ = 0;  // the number of evaluations since best_ was set
};

}  // namespace lockstep
