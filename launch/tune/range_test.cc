#include "launch/tune/range_test.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace lockstep {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Returns the points with each loss replaced by the mean of itself and of up to `neighbours` losses on each side. If
// one of these losses is not finite, the mean is infinite.
std::vector<RatePoint> Smoothed(const std::vector<RatePoint>& points, size_t neighbours) {
  std::vector<RatePoint> smoothed = points;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t around = std::min({neighbours, i, points.size() - 1 - i});
    double sum = 0;
    for (size_t at = i - around; at <= i + around; ++at) sum += points[at].loss;
    const double mean = sum / static_cast<double>(2 * around + 1);
    smoothed[i].loss = std::isfinite(mean) ? mean : kInfinite;
  }
  return smoothed;
}

}  // namespace

RangeTest::RangeTest(const std::vector<RatePoint>& points)
    : curve_(Smoothed(points, points.size() / 50)) {
  if (curve_.size() < 3) return;
  // The lowest rates hardly change the model. Their losses therefore give the loss at the beginning, and the standard
  // deviation of the loss from step to step, which comes only from the different samples.
  const size_t few = std::max<size_t>(curve_.size() / 8, 2);
  double first = 0;
  double squares = 0;
  for (size_t i = 0; i < few; ++i) {
    first += points[i].loss / static_cast<double>(few);
    squares += points[i].loss * points[i].loss / static_cast<double>(few);
  }
  const double deviation = std::sqrt(std::max(squares - first * first, 0.0));
  const auto lowest = std::ranges::min_element(curve_, {}, &RatePoint::loss);
  const double drop = first - lowest->loss;
  lowest_ = lowest->rate;
  falls_ = drop > std::max(2 * deviation, 0.01 * std::abs(first));
  constexpr double kBegun = 0.1;  // the fraction of `drop` by which the loss has fallen at begins()
  auto begins = lowest;
  while (begins != curve_.begin() && begins->loss < first - kBegun * drop) --begins;
  begins_ = begins->rate;
  const auto diverges = std::find_if(lowest, curve_.end(),
                                     [&](const RatePoint& point) { return point.loss > first; });
  diverges_ = diverges == curve_.end() ? curve_.back().rate : diverges->rate;
}

}  // namespace lockstep
