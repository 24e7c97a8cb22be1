#include "launch/tune/rate_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

namespace lockstep {
namespace {

// Searches to the end, and returns the number of trainings.
int Search(RateSearch& search, const std::function<double(double)>& loss) {
  int trainings = 0;
  for (; trainings < 40; ++trainings) {
    const std::optional<double> rate = search.Next();
    if (!rate) break;
    search.Add(*rate, loss(std::log10(*rate)));
  }
  return trainings;
}

TEST(RateSearch, FindsTheBestToAQuarterOfADecade) {
  for (const double best : {-4.0, -2.9, -2.0, -0.7}) {
    RateSearch search(0.001, 0.1);
    const int trainings =
        Search(search, [&](double exponent) { return 1 + std::abs(exponent - best); });
    EXPECT_NEAR(std::log10(*search.Best()), best, 0.13) << best;
    EXPECT_LE(trainings, 10) << best;
  }
}

TEST(RateSearch, AValleyBehindAHillIsFound) {
  RateSearch search(1e-3, 0.1);
  Search(search, [](double exponent) {
    return std::min(1 + std::abs(exponent + 3), 0.8 + 0.5 * std::abs(exponent + 1.2));
  });
  EXPECT_NEAR(std::log10(*search.Best()), -1.2, 0.13);
}

TEST(RateSearch, GoesDownWhereEverythingDiverges) {
  RateSearch search(0.1, 10);
  Search(search, [](double exponent) {
    return exponent > -2.2 ? std::numeric_limits<double>::infinity() : 1 - exponent;
  });
  EXPECT_NEAR(std::log10(*search.Best()), -2.5, 0.3);
}

TEST(RateSearch, EndsWhereNothingConverges) {
  RateSearch search(0.1, 1);
  EXPECT_LT(Search(search, [](double) { return std::numeric_limits<double>::quiet_NaN(); }), 15);
  EXPECT_FALSE(search.Best());
}

TEST(RateSearch, FollowsBetterRatesToALimit) {
  RateSearch search(0.1, 1);
  const int trainings = Search(search, [](double exponent) {
    EXPECT_LE(exponent, 3);
    return -exponent;
  });
  EXPECT_NEAR(std::log10(*search.Best()), 3, 0.3);
  EXPECT_LT(trainings, 15);
}

TEST(RateSearch, TakesWhatOthersHaveTried) {
  RateSearch search(0.01, 0.01);
  search.Add(0.012, 1);
  EXPECT_GT(std::abs(std::log10(*search.Next()) + 2), 0.3);
  Search(search, [](double exponent) { return 2 + std::abs(exponent); });
  EXPECT_NEAR(*search.Best(), 0.012, 1e-9);
}

}  // namespace
}  // namespace lockstep
