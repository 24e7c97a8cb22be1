// Permutation: a pseudo-random order of n samples, computed index by index.
//
// Promise: for every seed and round, position -> index is a bijection of [0, n). Of(position) takes O(1) time, and the
// object takes O(1) memory, even for n = 10^12.
//
// Invariant: the order depends on (seed, round, n) alone. It does not depend on the machine, the number of ranks or the
// order of the calls of Of(). If this file's arithmetic changes, the order of samples changes in every run. The test
// Permutation.TheOrderIsFixedForEver (data/feed/sampler_test.cc) therefore compares the order with stored examples.
//
// How: an alternating Feistel network permutes [0, 2^b), where b is the number of bits of n - 1. The b bits are split
// into a left and a right part of b/2 bits each (if b is odd, the left part has one bit more). Every round of the
// network xors one part with a keyed hash of the other part. This xor can be undone, so each round and the whole
// network are bijections. If an output lies outside [0, n), it is permuted again until it lies inside (cycle walking:
// Black and Rogaway, 'Ciphers with arbitrary finite domains', CT-RSA 2002); because 2^b < 2n, an index takes fewer than
// two passes through the network on average.
//
// what can fail -> what the caller sees -> the test that shows it
//   n < 1, or a position outside [0, n) -> undefined; callers check -> (none)
#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

class Permutation {
 public:
  // Each `round` (for example, the number of an epoch) has an order of its own. If n is small, the orders of two rounds
  // may be equal by chance. n must be in [1, 2^62].
  Permutation(int64_t n, uint64_t seed, uint64_t round);

  // Returns the index at `position`. Both are in [0, n).
  int64_t Of(int64_t position) const;

 private:
  uint64_t PermutePowerOfTwo(uint64_t x) const;

  // The number of rounds of the network. Four rounds are enough if both parts have many bits and the hash functions are
  // random (Luby and Rackoff). With a small n the parts have one or two bits. For such n all n! orders are equally
  // likely only with 16 or more rounds. (For n = 6, the chi-square of the counts of the orders is 73 standard
  // deviations above its expected value with 8 rounds, and 10 standard deviations with 12 rounds.) 24 rounds leave a
  // margin, and one call of Of() takes about 80 ns.
  static constexpr int kRounds = 24;

  uint64_t n_;
  int left_bits_ = 0;
  int right_bits_ = 0;
  std::array<uint64_t, kRounds> keys_{};
};

}  // namespace lockstep
