#include "launch/tune/rate_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace lockstep {
namespace {

struct Found {
  std::vector<double> exponents;   // decimal logarithms of the rates, in the order tried
  std::optional<double> exponent;  // logarithm of the best rate; nothing if no loss is finite
};

// Runs the search until it ends or 40 rates were tried. `loss` returns the loss for the decimal logarithm of a rate.
Found Search(RateSearch& search, const std::function<double(double)>& loss) {
  Found found;
  double least = std::numeric_limits<double>::infinity();
  while (found.exponents.size() < 40) {
    const std::optional<double> rate = search.Next();
    if (!rate) break;
    const double exponent = std::log10(*rate);
    const double here = loss(exponent);
    search.Add(*rate, here);
    found.exponents.push_back(exponent);
    if (here < least) {
      least = here;
      found.exponent = exponent;
    }
  }
  return found;
}

TEST(RateSearch, FindsTheBestToAQuarterOfADecade) {
  for (const double best : {-4.0, -2.9, -2.0, -0.7}) {
    RateSearch search(0.001, 0.1);
    const Found found =
        Search(search, [&](double exponent) { return 1 + std::abs(exponent - best); });
    EXPECT_NEAR(*found.exponent, best, 0.13) << best;
    EXPECT_LE(found.exponents.size(), 10) << best;
  }
}

TEST(RateSearch, AValleyBehindAHillIsFound) {
  RateSearch search(1e-3, 0.1);
  const Found found = Search(search, [](double exponent) {
    return std::min(1 + std::abs(exponent + 3), 0.8 + 0.5 * std::abs(exponent + 1.2));
  });
  EXPECT_NEAR(*found.exponent, -1.2, 0.13);
}

TEST(RateSearch, GoesDownWhereEverythingDiverges) {
  RateSearch search(0.1, 10);
  const Found found = Search(search, [](double exponent) {
    return exponent > -2.2 ? std::numeric_limits<double>::infinity() : 1 - exponent;
  });
  EXPECT_NEAR(*found.exponent, -2.5, 0.3);
}

TEST(RateSearch, EndsWhereNothingConverges) {
  RateSearch search(0.1, 1);
  const Found found =
      Search(search, [](double) { return std::numeric_limits<double>::quiet_NaN(); });
  EXPECT_LT(found.exponents.size(), 15);
  EXPECT_FALSE(found.exponent);
}

TEST(RateSearch, FollowsBetterRatesToALimit) {
  RateSearch search(0.1, 1);
  const Found found = Search(search, [](double exponent) {
    EXPECT_LE(exponent, 3);
    return -exponent;
  });
  EXPECT_NEAR(*found.exponent, 3, 0.3);
  EXPECT_LT(found.exponents.size(), 15);
}

TEST(RateSearch, TakesWhatOthersHaveTried) {
  const double known = std::log10(0.012);
  RateSearch search(0.01, 0.01);
  search.Add(0.012, 1);
  EXPECT_GT(std::abs(std::log10(*search.Next()) + 2), 0.3);
  // 0.012 is the best rate, so only rates beside it are tried.
  const Found found = Search(search, [](double exponent) { return 2 + std::abs(exponent); });
  const std::vector<double> expected{known - 0.5, known + 0.5, known - 0.25, known + 0.25};
  ASSERT_EQ(found.exponents.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found.exponents[i], expected[i], 1e-9);
}

}  // namespace
}  // namespace lockstep
