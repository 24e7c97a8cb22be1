#include "launch/tune/step_search.h"

#include <algorithm>

namespace lockstep {
namespace {

// Ways with twice the micro-batches of one that is so much slower than the best are not tried.
constexpr double kWorthFollowing = 0.9;

}  // namespace

StepSearch::StepSearch(const StepWay& users, int64_t most) : users_(users), most_(most) {}

std::optional<StepWay> StepSearch::Next() const {
  const bool checkpointing = users_.checkpointing;
  if (!SpeedOf(users_)) return users_;
  // Fewer micro-batches than those that cannot be used are larger, and cannot be used either.
  for (StepWay way{1, checkpointing}; way.accumulation <= most_; way.accumulation *= 2) {
    if (way.accumulation <= MostUnusable(checkpointing)) continue;
    const std::optional<double> speed = SpeedOf(way);
    if (!speed) return way;
    if (*speed < kWorthFollowing * Best()) break;
  }
  // With checkpointing larger micro-batches may fit. Without it a step does less, if it fits.
  const std::optional<int64_t> fewest = Fewest(checkpointing);
  StepWay other{fewest.value_or(users_.accumulation), !checkpointing};
  if (fewest && other.checkpointing) other.accumulation /= 2;
  if (other.accumulation >= 1 && !SpeedOf(other)) return other;
  return std::nullopt;
}

void StepSearch::Add(const StepWay& asked, int64_t made_in, double samples_per_s) {
  for (StepWay way = asked; way.accumulation < made_in; way.accumulation *= 2) speeds_[way] = 0;
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

std::optional<int64_t> StepSearch::Fewest(bool checkpointing) const {
  for (const auto& [way, speed] : speeds_) {
    if (way.checkpointing == checkpointing && speed > 0) return way.accumulation;
  }
  return std::nullopt;
}

double StepSearch::Best() const {
  double best = 0;
  for (const auto& [way, speed] : speeds_) best = std::max(best, speed);
  return best;
}

}  // namespace lockstep
