#include "data/dataset/permutation.h"

#include <bit>

#include "base/mix.h"

namespace lockstep {
namespace {

uint64_t LowBits(int bits) { return (uint64_t{1} << bits) - 1; }

}  // namespace

Permutation::Permutation(int64_t n, uint64_t seed, uint64_t round) : n_(static_cast<uint64_t>(n)) {
  const int bits = std::bit_width(n_ - 1);
  right_bits_ = bits / 2;
  left_bits_ = bits - right_bits_;
  uint64_t state = Mix(Mix(seed + kGolden) ^ (round * kGolden));
  for (uint64_t& key : keys_) key = Mix(state += kGolden);
}

int64_t Permutation::Of(int64_t position) const {
  auto x = static_cast<uint64_t>(position);
  do {
    x = PermutePowerOfTwo(x);
  } while (x >= n_);
  return static_cast<int64_t>(x);
}

uint64_t Permutation::PermutePowerOfTwo(uint64_t x) const {
  uint64_t left = x >> right_bits_;
  uint64_t right = x & LowBits(right_bits_);
  for (int round = 0; round < kRounds; round += 2) {
    right ^= Mix(left + keys_[round]) & LowBits(right_bits_);
    left ^= Mix(right + keys_[round + 1]) & LowBits(left_bits_);
  }
  return (left << right_bits_) | right;
}

}  // namespace lockstep
