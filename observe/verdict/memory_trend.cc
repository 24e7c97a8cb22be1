#include "observe/verdict/memory_trend.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace lockstep {
namespace {

constexpr size_t kMostPoints = 128;
constexpr size_t kSpans = 4;
constexpr size_t kLeastPoints = 4 * kSpans;
// In a trend, the growth of each span is at least this fraction of the mean growth of all spans.
constexpr double kLeastEvenness = 0.4;

}  // namespace

void MemoryTrend::Add(int64_t step, int64_t bytes) {
  if (calls_++ % spacing_ != 0) return;
  points_.push_back({step, bytes});
  if (points_.size() < kMostPoints) return;
  size_t kept = 0;
  for (size_t i = 0; i < points_.size(); i += 2) points_[kept++] = points_[i];
  points_.resize(kept);
  spacing_ *= 2;
}

double MemoryTrend::BytesPerStep() const {
  if (points_.size() < kLeastPoints) return 0;
  const size_t begin = points_.size() / 2;
  const size_t last = points_.size() - 1;
  std::array<double, kSpans> growth{};
  double all = 0;
  for (size_t span = 0; span < kSpans; ++span) {
    const Point& from = points_[begin + (last - begin) * span / kSpans];
    const Point& to = points_[begin + (last - begin) * (span + 1) / kSpans];
    growth[span] = static_cast<double>(to.bytes - from.bytes);
    all += growth[span];
  }
  const double least = *std::min_element(growth.begin(), growth.end());
  const auto steps = static_cast<double>(points_[last].step - points_[begin].step);
  if (steps <= 0 || all < least_growth_bytes_ || least < kLeastEvenness * all / kSpans) return 0;
  return all / steps;
}

}  // namespace lockstep
