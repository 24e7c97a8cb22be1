#include "observe/verdict/typical_time.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr double kShortestS = 1e-7;
constexpr double kLongestS = 1e3;
constexpr double kRatio = 1.01;  // the ratio of a range's upper and lower bound

size_t RangeOf(double seconds) {
  if (!(seconds > kShortestS)) return 0;
  return static_cast<size_t>(std::log(std::min(seconds, kLongestS) / kShortestS) /
                             std::log(kRatio));
}

}  // namespace

TypicalTime::TypicalTime() : counts_(RangeOf(kLongestS) + 1) {}

void TypicalTime::Add(double seconds) {
  ++counts_[RangeOf(seconds)];
  ++count_;
}

double TypicalTime::Percentile(double share) const {
  const auto before = static_cast<int64_t>(share * static_cast<double>(count_ - 1));
  int64_t seen = 0;
  for (size_t range = 0; range < counts_.size(); ++range) {
    seen += counts_[range];
    // The (geometric) middle of the range stands for all its durations.
    if (seen > before) return kShortestS * std::pow(kRatio, static_cast<double>(range) + 0.5);
  }
  return 0;
}

}  // namespace lockstep
