// SampleRandom: draws random numbers for a sample. The numbers depend only on the seed, the epoch and the sample's
// index.
#pragma once

#include <cstdint>

#include "base/mix.h"

namespace lockstep {

// Draws the random numbers of sample `index` in `epoch` (SplitMix64). They do not depend on the thread that draws them
// or on the time.
class SampleRandom {
 public:
  SampleRandom(uint64_t seed, int64_t epoch, int64_t index)
      : state_(Mix(Mix(seed + Mix(static_cast<uint64_t>(epoch))) + static_cast<uint64_t>(index))) {}

  // Returns a random number in [0, 1).
  double Uniform() {
    state_ += kGolden;
    return static_cast<double>(Mix(state_) >> 11) * 0x1p-53;
  }

  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }

 private:
  uint64_t state_;
};

}  // namespace lockstep
