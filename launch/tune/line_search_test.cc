#include "launch/tune/line_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace lockstep {
namespace {

using Speed = std::function<double(int64_t)>;

struct Searched {
  int64_t best = 0;
  int trials = 0;
};

Searched Search(int64_t first, int64_t most, const Speed& speed) {
  LineSearch search(first, 1, most);
  Searched searched;
  double best = -1;
  while (const auto number = search.Next()) {
    EXPECT_GE(*number, 1);
    EXPECT_LE(*number, most);
    search.Add(*number, speed(*number));
    if (speed(*number) > best) {
      best = speed(*number);
      searched.best = *number;
    }
    if (++searched.trials > 100) break;
  }
  return searched;
}

// Returns a function that models the speed of decoding on `cores` cores: each thread up to the number of cores makes
// the decoding faster, and each further thread makes the decoding a little slower.
Speed Decoding(double cores) {
  return [cores](int64_t threads) {
    const auto n = static_cast<double>(threads);
    return std::min(n, cores) - 0.001 * n;
  };
}

class FromAnyStart : public testing::TestWithParam<int64_t> {};

TEST_P(FromAnyStart, ComesNearTheBest) {
  for (const double cores : {1.0, 2.0, 3.0, 8.0, 14.0}) {
    const Speed speed = Decoding(cores);
    double most = 0;
    for (int64_t n = 1; n <= 16; ++n) most = std::max(most, speed(n));
    const Searched searched = Search(GetParam(), 16, speed);
    EXPECT_GE(speed(searched.best), 0.97 * most) << cores;
    EXPECT_LE(searched.trials, 11) << cores;
  }
}

INSTANTIATE_TEST_SUITE_P(LineSearch, FromAnyStart, testing::Values(1, 2, 3, 7, 15, 16));

TEST(LineSearch, EndsWhereAllAreAlike) {
  EXPECT_LE(Search(4, 64, [](int64_t) { return 1.0; }).trials, 8);
  EXPECT_EQ(Search(1, 1, [](int64_t) { return 1.0; }).trials, 1);
}

TEST(LineSearch, LeavesWhatCannotBeUsed) {
  EXPECT_EQ(Search(4, 64, [](int64_t n) { return n > 4 ? 0.0 : static_cast<double>(n); }).best, 4);
}

}  // namespace
}  // namespace lockstep
