// StepMeter: times the steps of one config after the other, for about two seconds each.
#pragma once

#include "config/schema/config.pb.h"
#include "launch/tune/trial.h"

namespace lockstep {

class StepMeter {
 public:
  // Steps before those that are timed: the first make the moments, search plans, and capture the graph.
  static constexpr int kWarmup = 4;

  // Keeps a reference to `runner`.
  explicit StepMeter(TrialRunner& runner) : runner_(runner) {}

  // The steps of the config before say how many take two seconds; the first config is timed again if its steps are
  // short. Throws Error.
  StepTrial operator()(const config::Config& config);

 private:
  TrialRunner& runner_;
  bool is_first_ = true;
  double step_ms_ = 0;  // of the last config; 0: unknown
};

}  // namespace lockstep
