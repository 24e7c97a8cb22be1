#include "launch/tune/largest_search.h"

#include <gtest/gtest.h>

#include <tuple>

namespace lockstep {
namespace {

struct Searched {
  int64_t largest = 0;
  int trials = 0;
};

Searched Search(int64_t guess, int64_t most, int64_t limit) {
  LargestSearch search(guess, most);
  Searched searched;
  while (const auto number = search.Next()) {
    EXPECT_GE(*number, 1);
    EXPECT_LE(*number, most);
    search.Add(*number, *number <= limit);
    if (++searched.trials > 100) break;
  }
  searched.largest = search.largest();
  return searched;
}

class FromAnyGuess : public testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

TEST_P(FromAnyGuess, FindsTheLimitToWithinThreePercent) {
  const auto [guess, limit] = GetParam();
  const Searched searched = Search(guess, 4096, limit);
  EXPECT_LE(searched.largest, limit);
  EXPECT_GE(static_cast<double>(searched.largest), static_cast<double>(limit) / 1.03 - 1);
  EXPECT_LE(searched.trials, 24);
}

INSTANTIATE_TEST_SUITE_P(LargestSearch, FromAnyGuess,
                         testing::Combine(testing::Values(1, 2, 40, 100, 107, 4096),
                                          testing::Values(1, 2, 3, 33, 100, 101, 1000, 4095)));

TEST(LargestSearch, TakesFewTrialsFromAGoodGuess) {
  EXPECT_LE(Search(95, 4096, 100).trials, 5);
  EXPECT_LE(Search(103, 4096, 100).trials, 4);
}

TEST(LargestSearch, EndsWhereAllFit) {
  EXPECT_EQ(Search(60, 64, 1000).largest, 64);
  EXPECT_EQ(Search(200, 64, 1000).largest, 64);
  EXPECT_EQ(Search(1, 1, 1).trials, 1);
}

TEST(LargestSearch, EndsWhereNoneFits) {
  EXPECT_EQ(Search(50, 64, 0).largest, 0);
  EXPECT_LE(Search(50, 64, 0).trials, 10);
}

TEST(LargestSearch, UsesWhatIsKnownBefore) {
  LargestSearch search(100, 4096);
  search.Add(16, true);
  EXPECT_EQ(search.Next(), 100);
  search.Add(100, false);
  EXPECT_EQ(search.Next(), 58);
}

}  // namespace
}  // namespace lockstep
