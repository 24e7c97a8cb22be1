#include "data/feed/weighted_draws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "data/feed/sampler.h"

namespace lockstep {
namespace {

// Returns, for each of the `samples` samples, how often the epoch takes it.
std::vector<int64_t> CountsOf(const WeightedDraws& draws, int64_t samples, int64_t epoch) {
  std::vector<int64_t> counts(samples);
  for (int64_t place = 0; place < samples; ++place) ++counts.at(draws.At(place, epoch));
  return counts;
}

TEST(WeightedDraws, TakesSamplesInProportionToTheirWeights) {
  const std::vector<double> weights = {0, 1, 2.5, 0, 7, 0.1, 3, 0};
  const auto samples = std::ssize(weights);
  const WeightedDraws draws(weights, 5);
  constexpr int64_t kEpochs = 4000;
  std::vector<double> means(samples);
  bool differs = false;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> counts = CountsOf(draws, samples, epoch);
    differs |= counts != CountsOf(draws, samples, 0);
    for (int64_t i = 0; i < samples; ++i) {
      const double expected = 8 * weights[i] / 13.6;
      EXPECT_GE(counts[i], std::floor(expected)) << i;
      EXPECT_LE(counts[i], std::ceil(expected)) << i;
      means[i] += static_cast<double>(counts[i]) / kEpochs;
    }
  }
  EXPECT_TRUE(differs);
  for (int64_t i = 0; i < samples; ++i) EXPECT_NEAR(means[i], 8 * weights[i] / 13.6, 0.03) << i;
}

TEST(WeightedDraws, TakesEachOnceIfAllWeightsAreTheSame) {
  const WeightedDraws draws(std::vector<double>(1000, 0.3), 1);
  EXPECT_THAT(CountsOf(draws, 1000, 7), testing::Each(1));
}

TEST(WeightedDraws, AreTheSameForAnyNumberOfRanksAndMicroBatches) {
  const auto draws =
      std::make_shared<const WeightedDraws>(std::vector<double>{1, 9, 3, 0, 2, 2, 4, 5, 1, 1}, 2);
  const auto samples_of_step = [&](int ranks, int accumulation, int64_t step) {
    std::vector<int64_t> samples;
    for (int micro = 0; micro < accumulation; ++micro) {
      for (int rank = 0; rank < ranks; ++rank) {
        Sampler sampler({.samples = 10,
                         .global_batch = 6,
                         .accumulation = accumulation,
                         .rank = rank,
                         .ranks = ranks,
                         .seed = 4,
                         .draws = draws});
        sampler.Seek(step);
        MicroBatch batch = sampler.Next();
        for (int skipped = 0; skipped < micro; ++skipped) batch = sampler.Next();
        samples.insert(samples.end(), batch.indices.begin(), batch.indices.end());
      }
    }
    return samples;
  };
  for (int64_t step = 0; step < 8; ++step) {
    EXPECT_EQ(samples_of_step(1, 1, step), samples_of_step(3, 2, step));
    EXPECT_THAT(samples_of_step(1, 1, step), testing::Not(testing::Contains(3)));
  }
  EXPECT_NE(samples_of_step(1, 1, 0), samples_of_step(1, 1, 2));  // step 2 is in another epoch
}

TEST(WeightedDraws, RefusesWeightsThatAreNone) {
  const auto message_of = [](const std::vector<double>& weights) {
    return MessageOf(ExitStatus::kData, [&] { WeightedDraws(weights, 1); });
  };
  EXPECT_EQ(message_of({1, -2}),
            "data.sampling: the weight of sample 1 is -2: give numbers of 0 or more");
  EXPECT_THAT(message_of({NAN}), testing::HasSubstr("sample 0 is nan"));
  EXPECT_EQ(message_of({0, 0}), "data.sampling: the weights of the 2 training samples add up to 0");
}

}  // namespace
}  // namespace lockstep
