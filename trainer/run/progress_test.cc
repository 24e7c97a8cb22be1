#include "trainer/run/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A simulated run, for which a test sets how many seconds each step, evaluation and pause takes.
class PlannedRun {
 public:
  explicit PlannedRun(const ProgressPlan& plan, int64_t first_step = 0)
      : plan_(plan), step_(first_step), progress_(plan, [this] { return now_; }) {
    progress_.Begin(first_step);
  }

  // Makes a step of `seconds` and returns its log line.
  Progress::Line Step(double seconds, double loss = 1) {
    progress_.BeginStep(step_++);
    now_ += seconds;
    if (std::exchange(is_first_, false)) progress_.CountFromHere();
    const Progress::Line line = progress_.TakeLine(step_);
    progress_.OnLoss(step_, loss);
    progress_.EndStep();
    return line;
  }

  Progress::Epoch Epoch(double evaluation_s) {
    const Progress::Epoch epoch = progress_.EndEpoch(step_);
    if (plan_.evaluates) {
      now_ += evaluation_s;
      progress_.OnEvaluation(evaluation_s);
    }
    progress_.BeginEpoch(step_);
    return epoch;
  }

  void Checkpoint(double seconds) { now_ += seconds; }

  double now() const { return now_; }
  const Progress& progress() const { return progress_; }

 private:
  ProgressPlan plan_;
  int64_t step_;
  double now_ = 1000;
  bool is_first_ = true;
  Progress progress_;
};

TEST(Progress, KnowsNothingAfterTheFirstStep) {
  PlannedRun run({.steps = 10, .steps_per_epoch = 10});
  EXPECT_EQ(run.progress().step(), 0);
  EXPECT_LT(run.Step(60).seconds_left, 0);
  EXPECT_EQ(run.progress().step(), 1);
  EXPECT_LT(run.Step(2).seconds_left, 0);
  EXPECT_DOUBLE_EQ(run.Step(2).seconds_left, 7 * 2);
}

// Checks that every line from the second epoch on gives exactly the time that is left, in a run where all steps but the
// first take 0.5 s, and all evaluations and all checkpoints also have constant times.
TEST(Progress, CountsEvaluationsAndCheckpointsIn) {
  const ProgressPlan plan{.steps = 95, .steps_per_epoch = 10, .evaluates = true};
  const auto train = [&](auto&& at_line) {
    PlannedRun run(plan);
    for (int step = 1; step <= 95; ++step) {
      const Progress::Line line = run.Step(step == 1 ? 30 : 0.5);
      at_line(step, line.seconds_left, run.now());
      if (step % 10 == 0 || step == 95) run.Epoch(20);
      run.Checkpoint(0.1);
    }
    return run.now() - 0.1;
  };
  const double end = train([](int, double, double) {});
  int lines = 0;
  train([&](int step, double left, double now) {
    if (step <= 10) return;
    ++lines;
    EXPECT_NEAR(left, end - now, 1e-6) << step;
  });
  EXPECT_EQ(lines, 85);
}

TEST(Progress, IsSmooth) {
  PlannedRun run({.steps = 100'000, .steps_per_epoch = 100'000});
  double before = 0;
  for (int step = 0; step < 2000; ++step) before = run.Step(0.1).seconds_left;
  // A single step that takes a hundred times as long as the others raises the estimate by less than 25 %.
  run.Step(10);
  const double after = run.Step(0.1).seconds_left;
  EXPECT_GT(after, before);
  EXPECT_LT(after, 1.25 * before);
  // If the next 2000 steps take 0.3 s each, the estimate for the remaining 100,000 - 4002 steps adapts to within 1 %.
  double slower = 0;
  for (int step = 0; step < 2000; ++step) slower = run.Step(0.3).seconds_left;
  EXPECT_NEAR(slower / (0.3 * (100'000 - 4002)), 1, 0.01);
}

TEST(Progress, MeansAreOverSamples) {
  // Each epoch has steps of 100, 100 and 50 samples.
  PlannedRun run({.steps = 6, .steps_per_epoch = 3, .global_batch = 100, .samples_per_epoch = 250});
  for (const double loss : {5.0, 3.0, 2.0}) run.Step(10, loss);
  const Progress::Epoch first = run.Epoch(0);
  EXPECT_DOUBLE_EQ(first.loss, (100 * 5 + 100 * 3 + 50 * 2) / 250.0);
  // The 10 s and the 100 samples of the process's first step do not count.
  EXPECT_DOUBLE_EQ(first.seconds, 20);
  EXPECT_DOUBLE_EQ(first.samples_per_s, 150 / 20.0);
  EXPECT_DOUBLE_EQ(run.progress().samples_per_s(), 150 / 20.0);
  for (const double loss : {1.0, 1.0, 0.5}) run.Step(5, loss);
  const Progress::Epoch second = run.Epoch(0);
  EXPECT_DOUBLE_EQ(second.loss, 225 / 250.0);
  EXPECT_DOUBLE_EQ(second.samples_per_s, 250 / 15.0);
  EXPECT_DOUBLE_EQ(run.progress().samples_per_s(), 250 / 15.0);
  EXPECT_DOUBLE_EQ(run.progress().trained_s(), 35);
}

TEST(Progress, TakesTheRestOfAnEpoch) {
  PlannedRun run({.steps = 6, .steps_per_epoch = 3, .global_batch = 100, .samples_per_epoch = 250},
                 1);
  EXPECT_DOUBLE_EQ(run.Step(10, 4).samples_per_s, 10);
  run.Step(10, 1);
  const Progress::Epoch epoch = run.Epoch(0);
  EXPECT_DOUBLE_EQ(epoch.loss, (100 * 4 + 50 * 1) / 150.0);
  EXPECT_DOUBLE_EQ(epoch.samples_per_s, 50 / 10.0);
}

TEST(Progress, LeavesLossesOutThatAreNotFinite) {
  PlannedRun run({.steps = 9, .steps_per_epoch = 3, .global_batch = 10, .samples_per_epoch = 30});
  for (const double loss : {kNan, 3.0, 1.0}) run.Step(1, loss);
  EXPECT_DOUBLE_EQ(run.Epoch(0).loss, 2);
  for (int step = 0; step < 3; ++step) run.Step(1, kNan);
  EXPECT_TRUE(std::isnan(run.Epoch(0).loss));
  EXPECT_TRUE(std::isnan(run.Epoch(0).loss));
}

}  // namespace
}  // namespace lockstep
