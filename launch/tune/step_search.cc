#include "launch/tune/step_search.h"

#include <algorithm>

namespace lockstep {
namespace {

// If a way reaches less than this fraction of the best speed, the way with twice as many micro-batches is not tried.
constexpr double kWorthFollowing = 0.9;

}  // namespace

StepSearch::StepSearch(const StepWay& users, int64_t most) : users_(users), most_(most) {}

std::optional<StepWay> StepSearch::Next() const {
  const bool checkpointing = users_.checkpointing;
  if (!SpeedOf(users_)) return users_;
  // `fewest` has the smallest number of micro-batches with which a step may fit in memory. If a step with some number
  // of micro-batches does not fit, a step with fewer micro-batches does not fit either, because its micro-batches are
  // larger.
  StepWay fewest{1, checkpointing};
  while (fewest.accumulation <= MostUnusable(checkpointing)) fewest.accumulation *= 2;
  const bool can_be_used = fewest.accumulation <= most_;
  if (can_be_used && !SpeedOf(fewest)) return fewest;
  // If the user's way has no checkpointing, larger micro-batches may fit with checkpointing. If the user's way has
  // checkpointing, a step without checkpointing may fit and computes less.
  StepWay other{can_be_used ? fewest.accumulation : users_.accumulation, !checkpointing};
  if (can_be_used && other.checkpointing) other.accumulation /= 2;
  if (other.accumulation >= 1 && !SpeedOf(other)) return other;
  for (StepWay way = fewest; way.accumulation <= most_; way.accumulation *= 2) {
    const std::optional<double> speed = SpeedOf(way);
    if (!speed) return way;
    if (*speed < kWorthFollowing * Best()) break;
  }
  return std::nullopt;
}

void StepSearch::Add(const StepWay& asked, int64_t made_in, double samples_per_s) {
  for (StepWay way = asked; way.accumulation < made_in; way.accumulation *= 2) {
    speeds_.try_emplace(way, 0);
  }
  speeds_[{made_in, asked.checkpointing}] = samples_per_s;
}

int64_t StepSearch::MostUnusable(bool checkpointing) const {
  int64_t most = 0;
  for (const auto& [way, speed] : speeds_) {
    if (way.checkpointing == checkpointing && speed == 0) most = std::max(most, way.accumulation);
  }
  return most;
}

std::optional<double> StepSearch::SpeedOf(const StepWay& way) const {
  const auto found = speeds_.find(way);
  if (found == speeds_.end()) return std::nullopt;
  return found->second;
}

double StepSearch::Best() const {
  double best = 0;
  for (const auto& [way, speed] : speeds_) best = std::max(best, speed);
  return best;
}

}  // namespace lockstep
