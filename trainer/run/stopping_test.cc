#include "trainer/run/stopping.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr int64_t kFar = 1'000'000;  // steps to the next evaluation: more than a test makes

// Returns the second at which `stopping` first asks a run to stop; -1: not within 10,000 steps. The run begins at
// second 0, its first step takes 20 s, and each other step takes 1 s. An epoch has `epoch` steps.
double AskedAt(Stopping& stopping, int64_t epoch, std::optional<double> slowest_save_s) {
  double now = 0;
  for (int64_t step = 0; step < 10'000; ++step) {
    if (stopping.Asked(now, epoch - step % epoch, slowest_save_s) != StopRequest::kNone) return now;
    now += step == 0 ? 20 : 1;
  }
  return -1;
}

Stopping::Options Until(double end_by_s) {
  return {.end_by_s = end_by_s, .user_stops = [] { return ""; }};
}

TEST(Stopping, NeverWithoutALimit) {
  Stopping stopping({.user_stops = [] { return ""; }});
  EXPECT_EQ(AskedAt(stopping, kFar, 5.0), -1);
  EXPECT_EQ(stopping.why(), "");
}

TEST(Stopping, LeavesTimeForStepsAndTheCheckpoint) {
  Stopping measured(Until(1000));
  EXPECT_EQ(AskedAt(measured, kFar, 5.0), 1000 - 1 - 10 - 2 * 5);
  EXPECT_EQ(measured.why(), "its time is over");
  Stopping::Options guessed = Until(1000);
  guessed.state_bytes = 2'000'000'000;
  Stopping stopping(guessed);
  EXPECT_EQ(AskedAt(stopping, kFar, std::nullopt), 1000 - 1 - 10 - 10);
}

TEST(Stopping, NotWithinAnEvaluationThatWouldTakeTooLong) {
  Stopping::Options options = Until(1000);
  options.global_batch = 10;
  options.validation_samples = 1000;  // 100 s at the training speed of 10 samples/s
  Stopping guessed(options);
  // The first epoch of 100 steps ends at second 20 + 99 = 119, and the ninth epoch ends at second 119 + 800 = 919. An
  // evaluation of 100 s would then end after second 1000. Stopping asks 10 steps before the ninth epoch ends.
  EXPECT_EQ(AskedAt(guessed, 100, 0.0), 919 - 10);
  Stopping measured(options);
  measured.OnEvaluation(30);
  measured.OnEvaluation(20);
  EXPECT_EQ(AskedAt(measured, 100, 0.0), 1000 - 1 - 10);
}

TEST(Stopping, AtOnceWhereTheTimeIsOver) {
  Stopping stopping(Until(-5));
  EXPECT_EQ(stopping.Asked(0, kFar, std::nullopt), StopRequest::kStop);
}

TEST(Stopping, WhereTheUserWantsIt) {
  int looks = 0;
  Stopping stopping({.user_stops = [&] { return ++looks == 3 ? "its user's STOP" : ""; }});
  EXPECT_EQ(stopping.Asked(10, kFar, {}), StopRequest::kNone);
  EXPECT_EQ(stopping.Asked(10.1, kFar, {}),
            StopRequest::kNone);  // less than 0.5 s after the first check
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(stopping.Asked(10.6, kFar, {}), StopRequest::kNone);
  EXPECT_EQ(stopping.Asked(11.2, kFar, {}), StopRequest::kInterrupt);
  EXPECT_EQ(stopping.Asked(11.3, kFar, {}), StopRequest::kInterrupt);
  EXPECT_EQ(looks, 3);
  EXPECT_EQ(stopping.why(), "its user's STOP");
}

}  // namespace
}  // namespace lockstep
