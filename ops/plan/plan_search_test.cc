// Tests which candidate is chosen, with given times and with times measured on a GPU.

#include "ops/plan/plan_search.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

namespace lockstep::ops {
namespace {

TEST(ChooseCandidate, TakesOneThatIsAtLeastTwoPercentFaster) {
  EXPECT_EQ(ChooseCandidate({{100}, {98.5}, {99}}), 0u);
  EXPECT_EQ(ChooseCandidate({{100}, {97.5}, {97.9}}), 1u);
  EXPECT_EQ(ChooseCandidate({{100}, {97.5}, {90}}), 2u);
  EXPECT_EQ(ChooseCandidate({{100}}), 0u);
}

TEST(ChooseCandidate, GoesByMedians) {
  EXPECT_EQ(ChooseCandidate({{100, 100, 100}, {10, 110, 110}}), 0u);
  EXPECT_EQ(ChooseCandidate({{100, 10, 100}, {900, 90, 90}}), 1u);
}

TEST(ChooseCandidate, PassesOverWhatDidNotRun) {
  EXPECT_EQ(ChooseCandidate({{100}, {}, {50}}), 2u);
  EXPECT_EQ(ChooseCandidate({{}, {}, {50}}), 2u);
  EXPECT_ANY_THROW(ChooseCandidate({{}, {}}));
}

TEST(PlanSource, NamesTheLibrary) {
  EXPECT_EQ(NameOf(PlanSource::kFirst, "cuDNN"), "cuDNN's first");
  EXPECT_EQ(NameOf(PlanSource::kSearched, "cuDNN"), "searched");
  EXPECT_EQ(NameOf(PlanSource::kFile, "cuDNN"), "from the file");
}

// A candidate that fills `mib` MiB of memory in each run, and whose result is `value`.
struct Fill {
  int64_t mib = 0;
  double value = 1;
  double step = 0;  // the amount by which `value` grows with each Sample()
  bool runs = true;
  int runs_left = std::numeric_limits<int>::max();
};

class Fills : public Candidates {
 public:
  explicit Fills(std::vector<Fill> fills)
      : fills_(std::move(fills)),
        memory_(at::empty({int64_t{512} << 20}, at::TensorOptions(at::kCUDA).dtype(at::kByte))) {}

  bool Run(size_t candidate) override {
    if (!fills_[candidate].runs || fills_[candidate].runs_left-- <= 0) return false;
    memory_.narrow(/*dim=*/0, /*start=*/0, fills_[candidate].mib << 20).fill_(1);
    return true;
  }
  bool AddNeighbour(size_t, std::minstd_rand&) override {
    if (neighbours.empty()) return false;
    fills_.push_back(neighbours.back());
    neighbours.pop_back();
    return true;
  }
  at::Tensor Sample(size_t candidate) override {
    if (!Run(candidate)) return {};
    Fill& fill = fills_[candidate];
    fill.value += fill.step;
    return at::full({8}, fill.value, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
  }

  std::vector<Fill> neighbours;

 private:
  std::vector<Fill> fills_;
  at::Tensor memory_;
};

class FindFastestTest : public testing::Test {
 protected:
  void SetUp() override {
    if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
  }

  static FastestCandidate Find(std::vector<Fill> fills) {
    const size_t proposed = fills.size();
    Fills candidates(std::move(fills));
    return FindFastest(candidates, proposed);
  }
};

TEST_F(FindFastestTest, TakesTheFastest) {
  const FastestCandidate fastest = Find({{.mib = 512}, {.mib = 256}, {.mib = 32}, {.mib = 128}});
  EXPECT_EQ(fastest.candidate, 2u);
  EXPECT_GT(fastest.us, 0);
  EXPECT_LT(fastest.us, fastest.first_us);
}

TEST_F(FindFastestTest, StaysWithTheFirst) {
  const FastestCandidate fastest = Find({{.mib = 32}, {.mib = 512}});
  EXPECT_EQ(fastest.candidate, 0u);
  EXPECT_EQ(fastest.us, fastest.first_us);
}

TEST_F(FindFastestTest, TriesNeighbours) {
  Fills candidates({{.mib = 512}, {.mib = 256}});
  candidates.neighbours = {{.mib = 384}, {.mib = 32}, {.runs = false}};
  // AddNeighbour() takes the neighbours from the end of the list, so the fastest one is candidate 3.
  EXPECT_EQ(FindFastest(candidates, 2).candidate, 3u);
}

TEST_F(FindFastestTest, PassesOverWhatDoesNotRun) {
  EXPECT_EQ(Find({{.mib = 512}, {.mib = 32, .runs = false}, {.mib = 128}}).candidate, 2u);
}

TEST_F(FindFastestTest, PassesOverWhatRunsNoMore) {
  // Candidate 1 has 12 runs left. 12 runs are enough to time the candidate once (one run before, and at most ten timed
  // runs), but not enough for the runs in turns.
  EXPECT_EQ(Find({{.mib = 512}, {.mib = 32, .runs_left = 12}, {.mib = 128}}).candidate, 2u);
}

TEST_F(FindFastestTest, SaysThatNoneRunsAnyMore) {
  EXPECT_THROW(Find({{.mib = 512, .runs_left = 12}}), c10::Error);
}

TEST_F(FindFastestTest, GivesTheSameToWithinRounding) {
  EXPECT_EQ(Find({{.mib = 512}, {.mib = 32, .value = 1.1}}).candidate, 0u);
  EXPECT_EQ(Find({{.mib = 512}, {.mib = 32, .value = 1.001}}).candidate, 1u);
}

TEST_F(FindFastestTest, GivesTheSameBitsEachTime) {
  EXPECT_EQ(Find({{.mib = 512}, {.mib = 32, .step = 1e-6}}).candidate, 0u);
}

TEST_F(FindFastestTest, WhatOverflowsIsTheSame) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Find({{.mib = 512, .value = kNan}, {.mib = 32, .value = kNan}}).candidate, 1u);
}

TEST_F(FindFastestTest, SaysThatTheFirstDoesNotRun) {
  EXPECT_THROW(Find({{.mib = 32, .runs = false}, {.mib = 32}}), c10::Error);
}

}  // namespace
}  // namespace lockstep::ops
