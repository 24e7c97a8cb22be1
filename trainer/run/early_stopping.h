// EarlyStopping: ends a run whose validation has not become better for a while (early_stopping).
//
// Promise: all ranks decide alike, because they have the same metrics. The decision is part of the run's state, so a
// run that is resumed ends where it would have ended, and one that has ended stays so until early_stopping asks for
// more.
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

  // Call it after each epoch's evaluation with its metrics, at the end of epoch `epoch`.
  void OnEvaluation(const std::vector<Metric>& metrics, int64_t epoch);

  // Whether the run is to end now.
  bool is_over() const;
  // Says why, in words; empty if it is not over.
  std::string why() const;

  void AddTo(StateTree& state);

 private:
  const config::EarlyStopping& config_;
  double best_ = 0;
  int64_t best_epoch_ = 0;           // 0: there is none yet
  int64_t without_improvement_ = 0;  // evaluations
};

}  // namespace lockstep
