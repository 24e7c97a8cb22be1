#include "launch/tune/step_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

// Runs a search in which a step fits in memory if it has at least `fits` micro-batches (with checkpointing:
// `fits_with`), and returns the ways that were timed. `speed` returns the samples/s of a way.
std::vector<StepWay> Timed(StepSearch search, int64_t fits, int64_t fits_with,
                           const std::function<double(const StepWay&)>& speed) {
  std::vector<StepWay> timed;
  while (const std::optional<StepWay> way = search.Next()) {
    EXPECT_LT(timed.size(), 40);
    if (timed.size() >= 40) break;
    timed.push_back(*way);
    StepWay made = *way;
    while (made.accumulation < (way->checkpointing ? fits_with : fits)) made.accumulation *= 2;
    search.Add(*way, made.accumulation, speed(made));
  }
  return timed;
}

TEST(StepSearch, StopsWhereMoreMicroBatchesAreClearlySlower) {
  const auto speed = [](const StepWay& way) {
    return 100.0 / static_cast<double>(way.accumulation);
  };
  EXPECT_THAT(Timed(StepSearch({4, false}, 64), 1, 1, speed),
              ElementsAre(StepWay{4, false}, StepWay{1, false}, StepWay{2, false}));
}

TEST(StepSearch, FollowsMicroBatchesThatAreFaster) {
  const auto speed = [](const StepWay& way) {
    return 100.0 + static_cast<double>(way.accumulation);
  };
  EXPECT_THAT(
      Timed(StepSearch({1, false}, 8), 1, 1, speed),
      ElementsAre(StepWay{1, false}, StepWay{2, false}, StepWay{4, false}, StepWay{8, false}));
}

TEST(StepSearch, TriesCheckpointingWhereMemoryRunsOut) {
  const auto speed = [](const StepWay& way) {
    return (way.checkpointing ? 80.0 : 100.0) / (1 + 0.2 * static_cast<double>(way.accumulation));
  };
  // Without checkpointing, a step of one or two micro-batches does not fit in memory, so it runs with four. With
  // checkpointing, a step of two micro-batches fits.
  EXPECT_THAT(Timed(StepSearch({1, false}, 64), 4, 2, speed),
              ElementsAre(StepWay{1, false}, StepWay{2, true}, StepWay{8, false}));
}

TEST(StepSearch, TriesWithoutCheckpointingWhatTheUserMakesWithIt) {
  const auto speed = [](const StepWay& way) {
    return (way.checkpointing ? 80.0 : 100.0) / static_cast<double>(way.accumulation);
  };
  EXPECT_THAT(Timed(StepSearch({2, true}, 64), 4, 1, speed),
              ElementsAre(StepWay{2, true}, StepWay{1, true}, StepWay{1, false}));
}

TEST(StepSearch, EndsIfNothingCanBeUsed) {
  const auto speed = [](const StepWay&) { return 0.0; };
  // The global batch has 64 samples. Not even micro-batches of one sample fit, so a step of 64 micro-batches has the
  // speed 0.
  EXPECT_THAT(Timed(StepSearch({1, false}, 64), 64, 64, speed),
              ElementsAre(StepWay{1, false}, StepWay{1, true}));
  EXPECT_THAT(Timed(StepSearch({2, true}, 64), 64, 64, speed),
              ElementsAre(StepWay{2, true}, StepWay{2, false}));
}

// Checks the search if steps of fewer than four micro-batches fit, but leave too little memory free, so that their
// speed counts as 0.
TEST(StepSearch, MakesSmallerMicroBatchesToLeaveMemory) {
  const auto speed = [](const StepWay& way) {
    if (way.accumulation < 4) return 0.0;
    return 100.0 / static_cast<double>(way.accumulation);
  };
  EXPECT_THAT(Timed(StepSearch({1, false}, 64), 1, 1, speed),
              ElementsAre(StepWay{1, false}, StepWay{2, false}, StepWay{4, false}, StepWay{2, true},
                          StepWay{8, false}));
}

// Checks that the search tries two micro-batches after a step of one micro-batch has failed and was not divided. The
// trainer does not halve the micro-batches if memory runs out outside of the forward and backward passes, so smaller
// micro-batches may fit.
TEST(StepSearch, GoesOnWithSmallerMicroBatchesThanOneThatFails) {
  StepSearch search({4, false}, 64);
  search.Add({4, false}, 4, 500);
  search.Add({1, false}, 1, 0);
  EXPECT_EQ(search.Next(), (StepWay{2, false}));
  search.Add({2, false}, 2, 0);
  EXPECT_EQ(search.Next(), (StepWay{2, true}));
  search.Add({2, true}, 2, 300);
  EXPECT_EQ(search.Next(), (StepWay{8, false}));
  search.Add({8, false}, 8, 400);
  EXPECT_EQ(search.Next(), std::nullopt);
}

// Checks that the user's way of four micro-batches, whose speed is known, keeps that speed if a later trial reports
// that no number of micro-batches fits.
TEST(StepSearch, KeepsTheSpeedsThatItKnows) {
  StepSearch search({4, false}, 64);
  search.Add({4, false}, 4, 500);
  search.Add({1, false}, 64, 0);
  EXPECT_EQ(search.Next(), (StepWay{4, true}));
}

TEST(StepSearch, HasNoMoreMicroBatchesThanSamples) {
  const auto speed = [](const StepWay&) { return 100.0; };
  EXPECT_THAT(Timed(StepSearch({1, false}, 3), 1, 1, speed),
              ElementsAre(StepWay{1, false}, StepWay{2, false}));
}

}  // namespace
}  // namespace lockstep
