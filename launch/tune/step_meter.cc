#include "launch/tune/step_meter.h"

#include <algorithm>

namespace lockstep {
namespace {

// Returns how many steps of `step_ms` ms take about two seconds, but at least 5 and at most 10,000. Returns 10 if
// `step_ms` is 0.
int StepsOf(double step_ms) {
  constexpr double kWanted_ms = 2000;
  constexpr int kLeast = 5;
  constexpr int kMost = 10'000;
  if (step_ms <= 0) return 2 * kLeast;  // the step time is unknown
  return static_cast<int>(std::clamp<double>(kWanted_ms / step_ms, kLeast, kMost));
}

}  // namespace

StepTrial StepMeter::operator()(const config::Config& config) {
  StepTrial trial = runner_.Measure(config, kWarmup, StepsOf(step_ms_));
  // The first measurement has only StepsOf(0) steps. If these steps take less than kLeast_ms in all, they are not
  // enough for a comparison, so the config is measured with more steps.
  constexpr double kLeast_ms = 500;
  if (is_first_ && runner_.HasTime() && trial.step_ms > 0 &&
      StepsOf(0) * trial.step_ms < kLeast_ms) {
    trial = runner_.Measure(config, kWarmup, StepsOf(trial.step_ms));
  }
  if (trial.stopped) return trial;
  is_first_ = false;
  step_ms_ = trial.step_ms;
  return trial;
}

}  // namespace lockstep
