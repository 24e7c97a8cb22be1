// WeightedDraws: chooses the samples of an epoch if some samples are to be used more often than others.
//
// Promise: an epoch of n draws (n is the number of samples) takes each sample either floor(e) or ceil(e) times, where
// e = n * weights[i] / (sum of all weights) for sample i. Each epoch chooses between floor(e) and ceil(e) at random, so
// that the mean over many epochs is e. This is systematic sampling (Madow 1949).
// torch.utils.data.WeightedRandomSampler, in contrast, makes independent draws, so its counts vary more.
//
// what can fail -> what the caller sees -> the test that shows it (data/feed/weighted_draws_test.cc)
//   a weight is negative or not finite, or all are zero -> Error (kData) -> WeightedDraws.Refuses*
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

class WeightedDraws {
 public:
  // `weights` has one weight for each sample, and must not be empty. Throws Error (kData).
  WeightedDraws(const std::vector<double>& weights, uint64_t seed);

  // Returns the sample that draw number `place` of the epoch takes; `place` is in [0, samples). If several draws take
  // the same sample, their numbers are adjacent. The caller must therefore go through the numbers in random order, so
  // that these draws are spread over the epoch.
  int64_t At(int64_t place, int64_t epoch) const;

  // Returns the sum of weights[0] to weights[i], for each sample i.
  const std::vector<double>& cumulative() const { return cumulative_; }

 private:
  std::vector<double> cumulative_;  // the sum of weights[0] to weights[i], for each sample i
  uint64_t seed_;
};

}  // namespace lockstep
