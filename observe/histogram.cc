#include "observe/histogram.h"

#include <algorithm>
#include <functional>
#include <iterator>

namespace lockstep {
namespace {

std::vector<double> Bounds() {
  std::vector<double> above;
  // PyTorch computes its bounds by the same multiplications, so these bounds have the same bits as PyTorch's.
  double bound = 1e-12;
  while (bound < 1e20) {
    above.push_back(bound);
    bound *= 1.1;
  }
  std::vector<double> bounds;
  std::transform(above.rbegin(), above.rend(), std::back_inserter(bounds), std::negate<>());
  bounds.push_back(0);
  bounds.insert(bounds.end(), above.begin(), above.end());
  return bounds;
}

}  // namespace

const std::vector<double>& HistogramBounds() {
  static const std::vector<double> kBounds = Bounds();
  return kBounds;
}

void SetCounts(std::span<const double> counts, Histogram& histogram) {
  const auto is_filled = [](double count) { return count > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), is_filled);
  const auto end = std::find_if(counts.rbegin(), counts.rend(), is_filled).base();
  const auto begin = HistogramBounds().begin() + (first - counts.begin());
  histogram.limits.assign(begin, begin + (end - first) + 1);
  histogram.counts.assign(1, 0);
  histogram.counts.insert(histogram.counts.end(), first, end);
}

}  // namespace lockstep
