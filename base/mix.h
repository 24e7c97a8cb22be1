// Mix(): hashes a number (such as a counter) to a number that looks random.
#pragma once

#include <cstdint>

namespace lockstep {

// The increment of SplitMix64's state: 2^64 divided by the golden ratio, rounded to an odd number.
inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

// Returns the hash of `x` by SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014), which is a bijection.
inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace lockstep
