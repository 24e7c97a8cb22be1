#include "launch/tune/rate_search.h"

#include <gtest/gtest.h>

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
    RateSearch search(0.01, 1e-7, 10);
    const int trainings =
        Search(search, [&](double exponent) { return 1 + std::abs(exponent - best); });
    EXPECT_NEAR(std::log10(*search.Best()), best, 0.13) << best;
    EXPECT_LE(trainings, 5 + 2 * std::abs(best + 2)) << best;
  }
}

TEST(RateSearch, GoesDownWhereEverythingDiverges) {
  RateSearch search(1, 1e-7, 10);
  Search(search, [](double exponent) {
    return exponent > -2.2 ? std::numeric_limits<double>::infinity() : 1 - exponent;
  });
  EXPECT_NEAR(std::log10(*search.Best()), -2.5, 0.3);
}

TEST(RateSearch, EndsWhereNothingConverges) {
  RateSearch search(1e-6, 1e-7, 10);
  EXPECT_LT(Search(search, [](double) { return std::numeric_limits<double>::quiet_NaN(); }), 6);
  EXPECT_FALSE(search.Best());
}

TEST(RateSearch, StaysWithinItsLimits) {
  RateSearch search(0.5, 0.1, 1);
  Search(search, [](double exponent) {
    EXPECT_GE(exponent, -1.06);
    EXPECT_LE(exponent, 0.06);
    return -exponent;
  });
  EXPECT_NEAR(std::log10(*search.Best()), 0, 0.2);
}

TEST(RateSearch, TakesWhatOthersHaveTried) {
  RateSearch search(0.01, 1e-7, 10);
  search.Add(0.03, 1);
  EXPECT_NE(search.Next(), 0.01);
  Search(search, [](double exponent) { return 2 + std::abs(exponent); });
  EXPECT_DOUBLE_EQ(*search.Best(), 0.03);
}

}  // namespace
}  // namespace lockstep
