#include "trainer/step/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

using config::Schedule;

TEST(LearningRateShare, ConstantIsOne) {
  for (int64_t step : {0, 5, 99}) EXPECT_EQ(LearningRateShare(Schedule(), step, 100), 1);
}

TEST(LearningRateShare, WarmUpGrowsToOneAndMeetsWhatFollows) {
  Schedule schedule;
  schedule.set_warmup_steps(4);
  for (const auto type : {Schedule::CONSTANT, Schedule::COSINE}) {
    schedule.set_type(type);
    EXPECT_EQ(LearningRateShare(schedule, 0, 100), 0.25);
    EXPECT_EQ(LearningRateShare(schedule, 3, 100), 1);
    EXPECT_EQ(LearningRateShare(schedule, 4, 100), 1);
  }
}

TEST(LearningRateShare, CosineFallsToTheFinalFraction) {
  Schedule schedule;
  schedule.set_type(Schedule::COSINE);
  schedule.set_final_fraction(0.1);
  EXPECT_EQ(LearningRateShare(schedule, 0, 100), 1);
  EXPECT_NEAR(LearningRateShare(schedule, 50, 100), 0.55, 1e-12);
  EXPECT_NEAR(LearningRateShare(schedule, 25, 100), 0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_NEAR(LearningRateShare(schedule, 100, 100), 0.1, 1e-12);
  EXPECT_NEAR(LearningRateShare(schedule, 1000, 100), 0.1, 1e-12);
}

TEST(LearningRateShare, AWarmUpLongerThanTheRunNeverDividesByZero) {
  Schedule schedule;
  schedule.set_type(Schedule::COSINE);
  schedule.set_warmup_steps(10);
  EXPECT_EQ(LearningRateShare(schedule, 4, 5), 0.5);
  EXPECT_EQ(LearningRateShare(schedule, 10, 10), 1);
}

TEST(Plateau, ForgetsLossesOfOtherSamplesAndKeepsTheRate) {
  Schedule schedule;
  schedule.set_patience(1);
  Plateau plateau(schedule);
  for (const double loss : {1.0, 1.0, 1.0}) plateau.OnValidation(loss);
  EXPECT_DOUBLE_EQ(plateau.share(), 0.1);
  plateau.OnValidation(1.0);
  plateau.BeginAnew();
  for (const double loss : {5.0, 5.0}) plateau.OnValidation(loss);
  EXPECT_DOUBLE_EQ(plateau.share(), 0.1);
  plateau.OnValidation(5.0);
  EXPECT_DOUBLE_EQ(plateau.share(), 0.01);
}

}  // namespace
}  // namespace lockstep
