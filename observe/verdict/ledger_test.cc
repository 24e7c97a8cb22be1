#include "observe/verdict/ledger.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lockstep {
namespace {

double Lost(const RankSeconds& sum) {
  return std::accumulate(sum.lost_s.begin(), sum.lost_s.end(), 0.0);
}

TEST(Ledger, LossesAndComputingAddUpToTheWallTime) {
  Ledger ledger;
  ledger.Spend(Loss::kRestarts, 7);
  const double before_s = ledger.spent_s();
  for (int step = 0; step < 100; ++step) {
    ledger.Add({.shape = 64, .total = 0.1, .data = 0.02, .exchange = 0.03, .idle = 0.04});
  }
  ledger.Spend(Loss::kEvaluation, 2);
  ledger.Add({.shape = 64, .total = 2.1, .data = 0.02, .between = ledger.spent_s() - before_s});
  ledger.Spend(Loss::kCheckpoints, 0.5);
  const RankSeconds sum = ledger.Sum();
  EXPECT_EQ(sum.steps, 101);
  EXPECT_NEAR(sum.wall_s, 7 + 100 * 0.1 + 2.1 + 0.5, 1e-9);
  EXPECT_NEAR(sum.computed_s + Lost(sum), sum.wall_s, 1e-9);
  EXPECT_NEAR(sum.lost(Loss::kReading), 101 * 0.02, 1e-9);
  EXPECT_NEAR(sum.lost(Loss::kCommunication), 100 * 0.03, 1e-9);
  EXPECT_NEAR(sum.lost(Loss::kLaunching), 100 * 0.02,
              1e-9);  // the idle time minus the wait for samples
  EXPECT_NEAR(sum.lost(Loss::kEvaluation), 2, 1e-9);
  EXPECT_NEAR(sum.lost(Loss::kCheckpoints), 0.5, 1e-9);
  EXPECT_NEAR(sum.lost(Loss::kRestarts), 7, 1e-9);
}

TEST(Ledger, TheIdealIsTheFifthPercentileOfEachShape) {
  Ledger ledger;
  for (int step = 1; step <= 100; ++step) {
    ledger.Add({.shape = 64, .total = 0.1 + 0.001 * step});
    if (step % 10 == 0) ledger.Add({.shape = 7, .total = 0.01});
  }
  EXPECT_NEAR(ledger.Sum().ideal_s, 100 * 0.105 + 10 * 0.01, 0.02 * 10.6);
}

TEST(Ledger, AGpuLosesOnlyTheTimeInWhichItIsIdle) {
  Ledger ledger;
  ledger.Add({.on_gpu = true, .shape = 64, .total = 0.1});
  ledger.Spend(Loss::kCheckpoints, 0.5);
  ledger.Add({.on_gpu = true, .shape = 64, .total = 0.4, .idle = 0.3, .between = 0.5});
  const RankSeconds sum = ledger.Sum();
  EXPECT_NEAR(sum.lost(Loss::kCheckpoints), 0.3, 1e-9);
  EXPECT_NEAR(sum.wall_s, 0.5, 1e-9);
  EXPECT_NEAR(sum.computed_s + Lost(sum), sum.wall_s, 1e-9);
}

TEST(Ledger, StepsWithoutGapsAreKnownByTheirShape) {
  Ledger ledger;
  ledger.Add({.on_gpu = true, .shape = 64, .unbroken = 0.05});
  ledger.Add({.on_gpu = true, .shape = 64, .unbroken = 0.04});
  EXPECT_EQ(ledger.Sum().steps, 0);
  for (int step = 0; step < 10; ++step) ledger.Add({.on_gpu = true, .shape = 64, .total = 0.1});
  ledger.Add({.on_gpu = true, .shape = 7, .total = 0.02});
  EXPECT_NEAR(ledger.Sum().unbroken_s, 10 * 0.04 + 0.02, 0.001);
  ledger.ForgetUnbroken();
  EXPECT_EQ(ledger.Sum().unbroken_s, 0);
}

TEST(Ledger, NoPartOfAStepIsLongerThanTheStep) {
  Ledger ledger;
  ledger.Add({.shape = 1, .total = 0.1, .data = 0.3, .exchange = 0.3, .idle = 1});
  const RankSeconds sum = ledger.Sum();
  EXPECT_NEAR(sum.wall_s, 0.1, 1e-9);
  EXPECT_NEAR(Lost(sum), 0.1, 1e-9);
  EXPECT_GE(sum.computed_s, 0);
}

}  // namespace
}  // namespace lockstep
