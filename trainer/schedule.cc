#include "trainer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {

double LearningRateShare(const config::Schedule& schedule, int64_t step, int64_t total_steps) {
  const int64_t warmup = schedule.warmup_steps();
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (schedule.type() == config::Schedule::CONSTANT) return 1;
  const double progress = static_cast<double>(step - warmup) /
                          static_cast<double>(std::max<int64_t>(total_steps - warmup, 1));
  const double floor = schedule.final_fraction();
  return floor + (1 - floor) * (1 + std::cos(std::numbers::pi * std::min(progress, 1.0))) / 2;
}

}  // namespace lockstep
