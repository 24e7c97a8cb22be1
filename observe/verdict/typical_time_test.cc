#include "observe/verdict/typical_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lockstep {
namespace {

TEST(TypicalTime, FindsPercentilesToOnePercent) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> seconds(-5, 2);
  TypicalTime times;
  std::vector<double> all(10'001);
  for (double& value : all) times.Add(value = seconds(random));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(times.count(), 10'001);
  for (const double share : {0.0, 0.05, 0.5, 0.99, 1.0}) {
    const double exact = all[static_cast<size_t>(share * 10'000)];
    EXPECT_NEAR(times.Percentile(share) / exact, 1, 0.011) << share;
  }
}

TEST(TypicalTime, TakesEveryDuration) {
  TypicalTime times;
  EXPECT_EQ(times.Percentile(0.5), 0);
  times.Add(-1);
  times.Add(0);
  EXPECT_LT(times.Percentile(1), 2e-7);
  times.Add(1e9);
  EXPECT_NEAR(times.Percentile(1), 1e3, 10);
}

}  // namespace
}  // namespace lockstep
