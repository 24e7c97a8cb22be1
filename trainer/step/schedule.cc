#include "trainer/step/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace lockstep {
namespace {

// Returns a value that goes from `begin` to `end` along half a cosine wave while `progress` goes from 0 to 1.
double Cosine(double begin, double end, double progress) {
  return end + (begin - end) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

}  // namespace

double LearningRateShare(const config::Schedule& schedule, int64_t step, int64_t total_steps) {
  constexpr double kOneCycleBegin = 1.0 / 25;
  const int64_t warmup = schedule.warmup_steps();
  const bool one_cycle = schedule.type() == config::Schedule::ONE_CYCLE;
  if (step < warmup) {
    // PyTorch's OneCycleLR reaches its peak at step warmup - 1, counted from 0.
    return one_cycle ? Cosine(kOneCycleBegin, 1,
                              static_cast<double>(step) /
                                  static_cast<double>(std::max<int64_t>(warmup - 1, 1)))
                     : static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  const double after = static_cast<double>(step - warmup);
  const double progress =
      std::min(after / static_cast<double>(std::max<int64_t>(total_steps - warmup, 1)), 1.0);
  const double end = schedule.final_fraction();
  switch (schedule.type()) {
    case config::Schedule::CONSTANT:
    case config::Schedule::PLATEAU:
      return 1;
    case config::Schedule::COSINE:
      return Cosine(1, end, progress);
    case config::Schedule::LINEAR:
      return 1 + (end - 1) * progress;
    case config::Schedule::STEP:
      return std::pow(schedule.factor(),
                      std::floor(after / static_cast<double>(schedule.every_steps())));
    case config::Schedule::ONE_CYCLE:
      // OneCycleLR reaches its final learning rate at the last step.
      return Cosine(
          1, end,
          std::min((after + 1) / static_cast<double>(std::max<int64_t>(total_steps - warmup, 1)),
                   1.0));
    case config::Schedule::RANGE_TEST:
      return std::pow(schedule.first_fraction(), 1 - after / static_cast<double>(std::max<int64_t>(
                                                                 total_steps - warmup - 1, 1)));
  }
  throw BugError("schedule.type {}", static_cast<int>(schedule.type()));
}

void Plateau::OnValidation(double loss) {
  constexpr double kThreshold = 1e-4;
  if (loss < best_ * (1 - kThreshold)) {
    best_ = loss;
    without_improvement_ = 0;
  } else if (++without_improvement_ > schedule_.patience()) {
    share_ *= schedule_.factor();
    without_improvement_ = 0;
  }
}

void Plateau::BeginAnew() {
  best_ = std::numeric_limits<double>::infinity();
  without_improvement_ = 0;
}

void Plateau::AddTo(StateTree& state) {
  state.Add("best", best_);
  state.Add("without_improvement", without_improvement_);
  state.Add("share", share_);
}

}  // namespace lockstep
