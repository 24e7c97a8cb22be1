// WeightedDraws: which samples an epoch takes if some are to be taken more often than others.
//
// Promise: an epoch of n draws takes sample i floor(e) or ceil(e) times, where e = n * weight_i / sum of weights. Whether
// it is the one or the other differs from epoch to epoch, so that the mean over many epochs is e. This is systematic
// sampling (Madow 1949); torch.utils.data.WeightedRandomSampler draws independently, so that its counts scatter more.
//
// what can fail -> what the caller sees -> the test that shows it (data/feed/weighted_draws_test.cc)
//   a weight is negative or not finite, or all are zero -> Error (kData) -> WeightedDraws.Refuses*
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

class WeightedDraws {
 public:
  // One weight for each sample, of which there must be some. Throws Error (kData).
  WeightedDraws(const std::vector<double>& weights, uint64_t seed);

  // Returns the sample that draw number `place`, in [0, samples), of the epoch takes. Draws of one sample are neighbours;
  // the caller takes the places in random order.
  int64_t At(int64_t place, int64_t epoch) const;

 private:
  std::vector<double> cumulative_;  // of each sample, the sum of the weights up to it
  uint64_t seed_;
};

}  // namespace lockstep
