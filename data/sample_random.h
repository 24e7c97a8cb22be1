// SampleRandom: random numbers that depend on a sample and nothing else.
#pragma once

#include <cstdint>

namespace lockstep {

// Numbers of sample `index` in `epoch`, the same whichever thread draws them, and whenever (SplitMix64:
// Steele, Lea and Flood 2014).
class SampleRandom {
 public:
  SampleRandom(uint64_t seed, int64_t epoch, int64_t index)
      : state_(Mix(Mix(seed + Mix(static_cast<uint64_t>(epoch))) + static_cast<uint64_t>(index))) {}

  // In [0, 1).
  double Uniform() {
    state_ += kStep;
    return static_cast<double>(Mix(state_) >> 11) * 0x1p-53;
  }

  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;

  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  uint64_t state_;
};

}  // namespace lockstep
