// StepMeter: measures the step time of several configs in turn. Each config is timed for about two seconds.
#pragma once

#include "config/schema/config.pb.h"
#include "launch/tune/trial.h"

namespace lockstep {

class StepMeter {
 public:
  // The number of steps before the timed steps. The first steps allocate the optimizer's moments, search for kernel
  // plans, and capture the CUDA graph.
  static constexpr int kWarmup = 4;

  // Keeps a reference to `runner`.
  explicit StepMeter(TrialRunner& runner) : runner_(runner) {}

  // Times steps of `config`. The number of steps is computed from the step time of the previous config, so that the
  // steps take about two seconds. If the steps of the first config turn out to be short, that config is timed a second
  // time with more steps, if there is time. Throws Error.
  StepTrial operator()(const config::Config& config);

 private:
  TrialRunner& runner_;
  bool is_first_ = true;
  double step_ms_ = 0;  // the step time of the previous config; 0: unknown
};

}  // namespace lockstep
