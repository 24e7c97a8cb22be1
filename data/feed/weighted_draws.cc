#include "data/feed/weighted_draws.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/dataset/sample_random.h"

namespace lockstep {
namespace {

// No sample has this index, so the random numbers for it are independent of the random numbers for any sample's
// augmentation.
constexpr int64_t kNoSample = -1;

}  // namespace

WeightedDraws::WeightedDraws(const std::vector<double>& weights, uint64_t seed) : seed_(seed) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0) || !std::isfinite(weights[i])) {
      throw DataError("data.sampling: the weight of sample {} is {}: give numbers of 0 or more", i,
                      weights[i]);
    }
    sum += weights[i];
    cumulative_.push_back(sum);
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    throw DataError("data.sampling: the weights of the {} training samples add up to {}",
                    weights.size(), sum);
  }
}

int64_t WeightedDraws::At(int64_t place, int64_t epoch) const {
  const double shift = SampleRandom(seed_, epoch, kNoSample).Uniform();
  const double share =
      (static_cast<double>(place) + shift) / static_cast<double>(cumulative_.size());
  // Rounding may make share * cumulative_.back() equal to cumulative_.back(), the sum of all weights, for which
  // upper_bound() would find no sample. The search therefore uses at most `last`, the greatest double below this sum.
  const double last = std::nextafter(cumulative_.back(), 0.0);
  return std::ranges::upper_bound(cumulative_, std::min(share * cumulative_.back(), last)) -
         cumulative_.begin();
}

}  // namespace lockstep
