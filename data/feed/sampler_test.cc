#include "data/feed/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "base/error.h"
#include "data/dataset/permutation.h"

namespace lockstep {
namespace {

std::vector<int64_t> OrderOf(int64_t n, uint64_t seed, uint64_t round) {
  const Permutation permutation(n, seed, round);
  std::vector<int64_t> order(n);
  for (int64_t i = 0; i < n; ++i) order[i] = permutation.Of(i);
  return order;
}

bool IsPermutation(std::vector<int64_t> order) {
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

TEST(Permutation, IsABijectionForEverySmallSizeAndManySeeds) {
  for (int64_t n = 1; n <= 300; ++n) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      ASSERT_TRUE(IsPermutation(OrderOf(n, seed, seed / 3))) << "n " << n << " seed " << seed;
    }
  }
  for (int64_t n : {1023, 1024, 1025, 4096, 9973, 10007, 65537}) {
    ASSERT_TRUE(IsPermutation(OrderOf(n, 7, 1))) << "n " << n;
  }
}

// Checkpoints of older versions rely on this order, so a change of the arithmetic must be noticed. The values come from
// tests/sampler_reference.py, which was written from the description in permutation.h.
TEST(Permutation, TheOrderIsFixedForEver) {
  EXPECT_EQ(OrderOf(10, 1, 0), (std::vector<int64_t>{4, 2, 5, 6, 0, 7, 3, 1, 9, 8}));
  EXPECT_EQ(OrderOf(10, 1, 1), (std::vector<int64_t>{3, 7, 1, 5, 4, 9, 6, 2, 0, 8}));
  const Permutation trillion(1'000'000'000'000, 42, 3);
  EXPECT_EQ(trillion.Of(0), 485295044300);
  EXPECT_EQ(trillion.Of(999'999'999'999), 676942606679);
}

TEST(Permutation, TakesNoMemoryThatGrowsWithTheData) {
  EXPECT_LE(sizeof(Permutation), 256u);
  const Permutation trillion(1'000'000'000'000, 42, 3);
  for (int64_t position = 0; position < 1'000'000'000'000; position += 9'999'999'967) {
    const int64_t index = trillion.Of(position);
    ASSERT_GE(index, 0);
    ASSERT_LT(index, 1'000'000'000'000);
  }
}

// Statistics of a set of orders of n samples. After `random:`, a comment gives the expected value for uniformly random
// permutations.
struct Spread {
  // The positions and the indices are each divided into 16 equal stretches. `chi_square` is that of the table that
  // counts, over all orders, how often an index of stretch i is at a position of stretch j. This chi-square has 225
  // degrees of freedom, because the sums of the rows and columns are fixed.
  double chi_square = 0;
  double mean_displacement = 0;   // mean |order[i] - i| / n; random: (n^2 - 1) / (3 n^2)
  double mean_fixed_points = 0;   // random: 1
  double mean_ascending = 0;      // the share of all i with order[i] < order[i + 1]; random: 1 / 2
  double serial_correlation = 0;  // correlation of order[i] and order[i + 1]; random: about -1 / n
};

using Orders = std::function<std::vector<int64_t>(int64_t n, uint64_t seed)>;

Spread SpreadOf(const Orders& orders, int64_t n, int seeds) {
  constexpr int kStretches = 16;
  std::vector<double> counts(kStretches * kStretches);
  Spread spread;
  double products = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const std::vector<int64_t> order = orders(n, seed);
    const double mean = static_cast<double>(n - 1) / 2;
    const double variance = (static_cast<double>(n) * n - 1) / 12;
    for (int64_t i = 0; i < n; ++i) {
      ++counts[(i * kStretches / n) * kStretches + order[i] * kStretches / n];
      spread.mean_displacement += std::abs(static_cast<double>(order[i] - i)) / n / n / seeds;
      spread.mean_fixed_points += (order[i] == i ? 1.0 : 0.0) / seeds;
      if (i + 1 == n) continue;
      spread.mean_ascending += (order[i] < order[i + 1] ? 1.0 : 0.0) / (n - 1) / seeds;
      products += (order[i] - mean) * (order[i + 1] - mean) / variance / (n - 1) / seeds;
    }
  }
  spread.serial_correlation = products;
  const double expected = static_cast<double>(n) * seeds / counts.size();
  for (double count : counts) {
    spread.chi_square += (count - expected) * (count - expected) / expected;
  }
  return spread;
}

// Expects that 400 orders of 1,024 samples have the statistics of random permutations. The orders are fixed, so a test
// cannot be flaky. Each bound is about five standard deviations from the expected value, and the orders of std::shuffle
// are within the same bounds.
void ExpectSpreadLikeAShuffle(const Orders& orders) {
  constexpr int64_t kSize = 1024;
  constexpr int kSeeds = 400;
  const Spread spread = SpreadOf(orders, kSize, kSeeds);
  EXPECT_GT(spread.chi_square, 225 - 5 * std::sqrt(2 * 225.0));
  EXPECT_LT(spread.chi_square, 225 + 5 * std::sqrt(2 * 225.0));
  EXPECT_NEAR(spread.mean_displacement, 1.0 / 3, 0.0019);
  EXPECT_NEAR(spread.mean_fixed_points, 1, 5 / std::sqrt(1.0 * kSeeds));
  EXPECT_NEAR(spread.mean_ascending, 0.5, 5 * std::sqrt(1.0 / 12 / kSize / kSeeds));
  EXPECT_NEAR(spread.serial_correlation, -1.0 / kSize, 5 / std::sqrt(1.0 * kSize * kSeeds));
}

TEST(Permutation, SpreadsLikeAShuffleOverSeeds) {
  ExpectSpreadLikeAShuffle([](int64_t n, uint64_t seed) { return OrderOf(n, seed, 0); });
}

TEST(Permutation, SpreadsLikeAShuffleOverEpochs) {
  ExpectSpreadLikeAShuffle([](int64_t n, uint64_t round) { return OrderOf(n, 1, round); });
}

TEST(Permutation, AShuffleSpreadsLikeAShuffle) {
  ExpectSpreadLikeAShuffle([](int64_t n, uint64_t seed) {
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    return order;
  });
}

// Checks that the statistics tell a shuffle from a rotation by an amount that depends on the seed.
TEST(Permutation, ARotationDoesNotSpreadLikeAShuffle) {
  const Spread spread = SpreadOf(
      [](int64_t n, uint64_t seed) {
        std::vector<int64_t> order(n);
        for (int64_t i = 0; i < n; ++i) order[i] = (i + 389 * static_cast<int64_t>(seed)) % n;
        return order;
      },
      1024, 400);
  EXPECT_GT(spread.mean_ascending, 0.9);
  EXPECT_GT(spread.serial_correlation, 0.9);
}

// Checks that all n! orders of n <= 6 samples occur about equally often, 500 times each on average: the chi-square of
// their counts is at most 5 standard deviations above its expected value.
TEST(Permutation, EveryOrderOfFewThingsIsEquallyLikely) {
  for (int n : {2, 3, 4, 5, 6}) {
    std::vector<int64_t> first(n);
    std::iota(first.begin(), first.end(), 0);
    std::vector<std::vector<int64_t>> all;
    do {
      all.push_back(first);
    } while (std::next_permutation(first.begin(), first.end()));
    const int draws = 500 * static_cast<int>(all.size());
    std::vector<double> counts(all.size());
    for (int seed = 0; seed < draws; ++seed) {
      ++counts[std::lower_bound(all.begin(), all.end(), OrderOf(n, seed, 0)) - all.begin()];
    }
    double chi_square = 0;
    for (double count : counts) chi_square += (count - 500) * (count - 500) / 500;
    const double freedom = static_cast<double>(all.size()) - 1;
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom)) << "n " << n;
  }
}

std::vector<Sampler> SamplersOfAllRanks(SamplerOptions options) {
  std::vector<Sampler> samplers;
  for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
    samplers.emplace_back(options);
  }
  return samplers;
}

// Returns the samples of one optimizer step over all ranks and micro-batches, in the order of the pieces.
std::vector<int64_t> StepOf(std::vector<Sampler>& samplers, int accumulation) {
  std::vector<int64_t> step;
  int64_t global_count = 0;
  for (int micro = 0; micro < accumulation; ++micro) {
    for (Sampler& sampler : samplers) {
      const MicroBatch batch = sampler.Next();
      EXPECT_EQ(batch.micro, micro);
      EXPECT_LE(static_cast<int64_t>(batch.indices.size()), sampler.max_micro_batch());
      global_count = batch.global_count;
      step.insert(step.end(), batch.indices.begin(), batch.indices.end());
    }
  }
  EXPECT_EQ(static_cast<int64_t>(step.size()), global_count);
  return step;
}

TEST(Sampler, EveryIndexExactlyOnceAnEpochForEveryWorldAndSize) {
  std::vector<int64_t> sizes{1, 2, 3, 5, 7, 8, 9, 31, 64, 100, 255, 257, 1000, 1797, 10007};
  std::mt19937 random(1);
  for (int i = 0; i < 30; ++i) sizes.push_back(std::uniform_int_distribution(1, 10007)(random));
  for (int64_t size : sizes) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      SamplerOptions options{.samples = size, .ranks = ranks, .seed = random()};
      options.accumulation = static_cast<int>(1 + random() % 3);
      options.global_batch = ranks * options.accumulation + static_cast<int64_t>(random() % 60);
      std::vector<Sampler> samplers = SamplersOfAllRanks(options);
      std::vector<std::vector<int64_t>> epochs;
      for (int epoch = 0; epoch < 2; ++epoch) {
        std::vector<int64_t> seen;
        for (int64_t step = 0; step < samplers[0].steps_per_epoch(); ++step) {
          for (int64_t index : StepOf(samplers, options.accumulation)) seen.push_back(index);
        }
        ASSERT_TRUE(IsPermutation(seen)) << size << " samples, " << ranks << " ranks";
        epochs.push_back(seen);
      }
      // Two orders of few samples may be equal by chance. For 12 samples the probability is 2e-9.
      if (size >= 12) {
        ASSERT_NE(epochs[0], epochs[1]) << size << " samples";
      }
    }
  }
}

TEST(Sampler, AStepsSamplesDoNotDependOnWorldOrAccumulation) {
  SamplerOptions options{.samples = 103, .global_batch = 24, .seed = 5};
  std::vector<Sampler> one = SamplersOfAllRanks(options);
  std::vector<std::vector<int64_t>> expected;
  for (int step = 0; step < 12; ++step) expected.push_back(StepOf(one, 1));
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int accumulation = 1; accumulation <= 3; ++accumulation) {
      options.ranks = ranks;
      options.accumulation = accumulation;
      std::vector<Sampler> samplers = SamplersOfAllRanks(options);
      for (int step = 0; step < 12; ++step) {
        ASSERT_EQ(StepOf(samplers, accumulation), expected[step]);
      }
    }
  }
}

TEST(Sampler, SeekEqualsIterating) {
  const SamplerOptions options{
      .samples = 1001, .global_batch = 32, .accumulation = 2, .rank = 1, .ranks = 3, .seed = 9};
  Sampler iterating(options);
  for (int64_t step = 0; step < 100; ++step) {
    Sampler seeking(options);
    seeking.Seek(step);
    for (int micro = 0; micro < 2; ++micro) {
      const MicroBatch expected = iterating.Next();
      const MicroBatch actual = seeking.Next();
      ASSERT_EQ(actual.indices, expected.indices);
      ASSERT_EQ(actual.epoch, expected.epoch);
      ASSERT_EQ(actual.step, expected.step);
      ASSERT_EQ(actual.micro, expected.micro);
      ASSERT_EQ(actual.global_count, expected.global_count);
    }
  }
}

TEST(Sampler, EveryRankMakesTheSameStepsAndALastBatchMayBeEmptyForSome) {
  SamplerOptions options{.samples = 9, .global_batch = 8, .ranks = 4, .seed = 2};
  std::vector<Sampler> samplers = SamplersOfAllRanks(options);
  EXPECT_EQ(samplers[0].steps_per_epoch(), 2);
  StepOf(samplers, 1);
  int64_t empty = 0;
  for (Sampler& sampler : samplers) {
    const MicroBatch batch = sampler.Next();
    EXPECT_EQ(batch.step, 1);
    EXPECT_EQ(batch.global_count, 1);
    empty += batch.indices.empty() ? 1 : 0;
  }
  EXPECT_EQ(empty, 3);
}

TEST(Sampler, DropLeavesOutTheShortBatchAndNothingElse) {
  SamplerOptions options{.samples = 103, .global_batch = 24, .ranks = 2, .seed = 5};
  options.last_batch = LastBatch::kDrop;
  std::vector<Sampler> samplers = SamplersOfAllRanks(options);
  ASSERT_EQ(samplers[0].steps_per_epoch(), 4);
  const std::vector<int64_t> order = OrderOf(103, 5, 0);
  std::vector<int64_t> seen;
  for (int step = 0; step < 4; ++step) {
    for (int64_t index : StepOf(samplers, 1)) seen.push_back(index);
  }
  EXPECT_EQ(seen, std::vector<int64_t>(order.begin(), order.begin() + 96));
  EXPECT_EQ(samplers[0].Next().epoch, 1);
}

TEST(Sampler, WithoutShufflingTheOrderIsTheDataSets) {
  Sampler sampler({.samples = 5, .global_batch = 3, .shuffle = false});
  EXPECT_EQ(sampler.Next().indices, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(sampler.Next().indices, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(sampler.Next().indices, (std::vector<int64_t>{0, 1, 2}));
}

TEST(Sampler, RefusesWhatLeavesNothingToDo) {
  EXPECT_THROW(Sampler({.samples = 0}), Error);
  EXPECT_THROW(Sampler({.samples = 10, .global_batch = 3, .ranks = 4}), Error);
  EXPECT_THROW(Sampler({.samples = 10, .global_batch = 6, .accumulation = 2, .ranks = 4}), Error);
  EXPECT_THROW(Sampler({.samples = 10, .global_batch = 11, .last_batch = LastBatch::kDrop}), Error);
}

}  // namespace
}  // namespace lockstep
