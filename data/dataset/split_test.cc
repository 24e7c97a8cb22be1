#include "data/dataset/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/testing/message_of.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(SplitBySeed, IsDisjointAndCompleteAndRoundsUp) {
  const Split split = SplitBySeed(1797, 0.2, 1);
  EXPECT_EQ(split.validation.size(), 360u);
  std::set<int64_t> all(split.train.begin(), split.train.end());
  all.insert(split.validation.begin(), split.validation.end());
  EXPECT_EQ(all.size(), 1797u);
  EXPECT_EQ(*all.rbegin(), 1796);
  EXPECT_TRUE(std::ranges::is_sorted(split.train));
  EXPECT_NE(split.validation, SplitBySeed(1797, 0.2, 2).validation);
  EXPECT_EQ(split.validation, SplitBySeed(1797, 0.2, 1).validation);
}

TEST(SplitBySeed, RefusesAnEmptyPart) {
  EXPECT_THROW(SplitBySeed(1, 0.5, 1), Error);
  EXPECT_THROW(SplitBySeed(10, 0, 1), Error);
  EXPECT_THROW(SplitBySeed(10, 1, 1), Error);
}

// Returns the split of each fold.
std::vector<Split> AllFolds(int64_t samples, FoldOptions options,
                            const std::vector<int64_t>& keys = {}) {
  std::vector<Split> folds;
  for (options.fold = 0; options.fold < options.count; ++options.fold) {
    folds.push_back(SplitByFold(samples, options, keys));
  }
  return folds;
}

// Expects that in each fold every sample is either trained on or held back, that both lists are in ascending order, and
// that all folds together hold back `samples` samples.
void ExpectPartition(int64_t samples, const std::vector<Split>& folds) {
  std::multiset<int64_t> held_back;
  for (const Split& fold : folds) {
    held_back.insert(fold.validation.begin(), fold.validation.end());
    std::set<int64_t> all(fold.train.begin(), fold.train.end());
    all.insert(fold.validation.begin(), fold.validation.end());
    EXPECT_EQ(std::ssize(all), samples);
    EXPECT_EQ(std::ssize(fold.train) + std::ssize(fold.validation), samples);
    EXPECT_TRUE(std::ranges::is_sorted(fold.train) && std::ranges::is_sorted(fold.validation));
  }
  EXPECT_EQ(std::ssize(held_back), samples);
}

TEST(SplitByFold, HoldsEachSampleBackOnce) {
  for (const int64_t samples : {5, 23, 100}) {
    const std::vector<Split> folds = AllFolds(samples, {.count = 5, .seed = 7});
    ExpectPartition(samples, folds);
    for (const Split& fold : folds) {
      EXPECT_THAT(std::ssize(fold.validation), testing::AnyOf(samples / 5, (samples + 4) / 5));
    }
  }
  const FoldOptions options{.count = 5, .seed = 7};
  EXPECT_NE(SplitByFold(100, options, {}).validation,
            SplitByFold(100, {.count = 5, .seed = 8}, {}).validation);
}

TEST(SplitByFold, HasAsManyOfEachClassInEachFold) {
  std::vector<int64_t> classes;
  for (const int64_t count : {13, 3, 41}) classes.insert(classes.end(), count, std::ssize(classes));
  const std::vector<Split> folds =
      AllFolds(57, {.count = 4, .by = FoldsBy::kStratified, .seed = 1}, classes);
  ExpectPartition(57, folds);
  for (const Split& fold : folds) {
    std::map<int64_t, int64_t> counts{{0, 0}, {13, 0}, {16, 0}};
    for (const int64_t sample : fold.validation) ++counts[classes[sample]];
    EXPECT_THAT(counts[0], testing::AnyOf(3, 4));
    EXPECT_THAT(counts[13], testing::AnyOf(0, 1));
    EXPECT_THAT(counts[16], testing::AnyOf(10, 11));
    EXPECT_THAT(fold.validation.size(), testing::AnyOf(14, 15));
  }
}

TEST(SplitByFold, KeepsGroupsTogether) {
  // The groups have 5, 4, 3, 2 and 2 of the 16 samples. Two folds of 8 samples (5 + 3 and 4 + 2 + 2) are possible, but
  // the test accepts folds that differ from 8 by one sample, because the assignment does not search for the best
  // division.
  const std::vector<int64_t> groups = {0, 1, 0, 2, 0, 3, 1, 4, 0, 2, 1, 3, 0, 4, 1, 2};
  const std::vector<Split> folds =
      AllFolds(16, {.count = 2, .by = FoldsBy::kGroup, .seed = 3}, groups);
  ExpectPartition(16, folds);
  EXPECT_THAT(folds[0].validation.size(), testing::AnyOf(7, 8, 9));
  for (const Split& fold : folds) {
    std::set<int64_t> trained;
    for (const int64_t sample : fold.train) trained.insert(groups[sample]);
    for (const int64_t sample : fold.validation) EXPECT_FALSE(trained.contains(groups[sample]));
  }
}

// Checks that the folds are those of sklearn.model_selection.TimeSeriesSplit(3).split(range(11)).
TEST(SplitByFold, TrainsOnWhatWasBefore) {
  const std::vector<Split> folds = AllFolds(11, {.count = 3, .by = FoldsBy::kTime});
  EXPECT_THAT(folds[0].train, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(folds[0].validation, ElementsAre(5, 6));
  EXPECT_THAT(folds[1].train, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(folds[1].validation, ElementsAre(7, 8));
  EXPECT_THAT(folds[2].train, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(folds[2].validation, ElementsAre(9, 10));
}

TEST(SplitByFold, RefusesEmptyFolds) {
  const auto message_of = [](int64_t samples, FoldsBy by, const std::vector<int64_t>& keys) {
    return MessageOf(ExitStatus::kUsage,
                     [&] { SplitByFold(samples, {.count = 3, .by = by}, keys); });
  };
  EXPECT_EQ(message_of(2, FoldsBy::kPlain, {}), "data.folds: 3 folds of 2 samples");
  EXPECT_EQ(message_of(3, FoldsBy::kTime, {}), "data.folds: 3 folds of 3 samples");
  EXPECT_EQ(message_of(4, FoldsBy::kGroup, {1, 0, 1, 0}), "data.folds: 3 folds of 2 groups");
}

}  // namespace
}  // namespace lockstep
