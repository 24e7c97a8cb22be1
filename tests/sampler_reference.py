"""Implements the sample order a second time, from the descriptions in data/dataset/permutation.h and
data/feed/sampler.h.

steps() yields the indices of the samples of each Lockstep step, and tests compare the C++ code with these. `python3
tests/sampler_reference.py N SEED EPOCH` prints an epoch's order.
"""

import sys

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_ROUNDS = 24


def _mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


class Permutation:
    """Holds the order of `n` samples that (seed, round) determines: item i is the index of the sample at position i."""

    def __init__(self, n, seed, round):
        self.n = n
        bits = (n - 1).bit_length()
        self.right_bits = bits // 2
        self.left_bits = bits - self.right_bits
        state = _mix(_mix((seed + _GOLDEN) & _MASK) ^ (round * _GOLDEN & _MASK))
        self.keys = [_mix((state + (i + 1) * _GOLDEN) & _MASK) for i in range(_ROUNDS)]

    def __getitem__(self, position):
        x = position
        while True:
            left, right = x >> self.right_bits, x & ((1 << self.right_bits) - 1)
            for i in range(0, _ROUNDS, 2):
                right ^= _mix((left + self.keys[i]) & _MASK) & ((1 << self.right_bits) - 1)
                left ^= _mix((right + self.keys[i + 1]) & _MASK) & ((1 << self.left_bits) - 1)
            x = (left << self.right_bits) | right
            if x < self.n:
                return x


def steps(samples, global_batch, seed, epochs):
    """Yields the sample indices of each optimizer step; a short last batch is kept."""
    for epoch in range(epochs):
        order = Permutation(samples, seed, epoch)
        for first in range(0, samples, global_batch):
            yield [order[p] for p in range(first, min(first + global_batch, samples))]


if __name__ == "__main__":
    n, seed, epoch = map(int, sys.argv[1:])
    print(*(Permutation(n, seed, epoch)[p] for p in range(n)))
