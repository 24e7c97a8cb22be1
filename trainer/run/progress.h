// Progress: computes how many steps a run has made, how fast it trains, how long it will still take, and the mean
// training loss of an epoch.
//
// Promise: the remaining time changes smoothly. It is the sum of three estimates: the remaining steps times the
// exponentially smoothed time of a step, the remaining evaluations times the mean time of an evaluation, and the
// remaining steps times the mean time of pauses between steps (checkpoints and others). The first step of a process is
// left out of these means, because it includes warm-up work.
//
// Protocol, on the thread that trains:
//   1. Call Begin() once. For each step call BeginStep(), TakeLine() if a log line is due, OnLoss() for the steps whose
//      loss has arrived, and EndStep(). Call CountFromHere() when the first step was made, before its TakeLine().
//   2. When all losses of an epoch have arrived, call EndEpoch(), OnEvaluation() if there was an evaluation, and
//      BeginEpoch(). The time between EndStep() and the next BeginStep(), except for evaluations, counts as a pause.
//
// what can fail -> what the caller sees -> the test that shows it (trainer/run/progress_test.cc)
//   only the first step was made -> seconds_left is negative -> Progress.KnowsNothingAfterTheFirstStep
//   a loss is not finite -> the epoch's mean leaves this loss out -> Progress.LeavesLossesOutThatAreNotFinite
//   no loss is finite -> the epoch's mean is NaN -> Progress.LeavesLossesOutThatAreNotFinite
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/clock.h"

namespace lockstep {

struct ProgressPlan {
  int64_t steps = 0;  // the number of optimizer steps of the whole run
  int64_t steps_per_epoch = 1;
  int64_t global_batch = 0;
  int64_t samples_per_epoch = 0;
  bool evaluates = false;  // whether there is an evaluation at the end of each epoch and of the run
};

class Progress {
 public:
  // The values in a step line of the log.
  struct Line {
    double seconds = 0;  // the seconds since the previous line
    double samples_per_s = 0;
    double seconds_left = -1;  // the seconds until the run's end; negative: not known yet
  };
  // The values in an epoch line of the log.
  struct Epoch {
    double seconds = 0;  // the seconds of training, without the process's first step
    double samples_per_s = 0;
    double loss = 0;  // the mean over the samples of the steps whose loss is finite
  };

  // `now` returns the time in seconds.
  explicit Progress(const ProgressPlan& plan, std::function<double()> now = SecondsSinceBoot)
      : plan_(plan), now_(std::move(now)) {}

  // Begin() says that `step`, counted from 0, is the first step that this process makes. CountFromHere() says that this
  // first step was made, and begins to count the time of training.
  void Begin(int64_t step);
  void CountFromHere();

  // BeginStep() says that `step`, counted from 0, begins. EndStep() says that this step has ended.
  void BeginStep(int64_t step);
  void EndStep();

  // Returns the values of the log line after `steps_done` steps. The last of these steps may still be running.
  Line TakeLine(int64_t steps_done);

  // EndEpoch() says that the epoch of step `steps_done`, counted from 1, has ended, and returns the epoch's values.
  // BeginEpoch() says that the next epoch begins; call it after the evaluation of the epoch that has ended, if there is
  // one.
  Epoch EndEpoch(int64_t steps_done);
  void BeginEpoch(int64_t steps_done);

  // Counts an evaluation that has just ended and took `seconds`.
  void OnEvaluation(double seconds);

  // Adds the loss of `step`, counted from 1, to the epoch's mean. `loss` is the mean over the step's samples.
  void OnLoss(int64_t step, double loss);

  // Returns the number of samples, of all ranks, that step `step` (counted from 1) trains on.
  int64_t SamplesOf(int64_t step) const { return SamplesIn(step) - SamplesIn(step - 1); }

  // Returns the number of the step that is being made or was made last, counted from 1; 0 before the first step.
  int64_t step() const { return step_; }

  // Returns the samples per second of training in the epochs that have ended, without evaluations and without the
  // process's first step. If a second epoch has ended, the first epoch does not count.
  double samples_per_s() const;

  // Returns the seconds of training in the epochs that have ended, without the process's first step.
  double trained_s() const { return trained_s_; }

 private:
  // Returns the number of samples on which the first `steps` optimizer steps train.
  int64_t SamplesIn(int64_t steps) const;
  // Returns the seconds until the run's end, or a negative number if they are not known.
  double SecondsLeft(int64_t steps_done) const;

  ProgressPlan plan_;
  std::function<double()> now_;
  int64_t first_step_ = 0;  // the first step of this process, counted from 0
  int64_t step_ = 0;

  int64_t line_step_ = 0;      // the number of the run's steps at the last line
  double line_s_ = 0;          // the time of the last line, or of BeginEpoch() if later
  double epoch_s_ = 0;         // the time of BeginEpoch(), or of CountFromHere() if later
  int64_t rated_samples_ = 0;  // the samples and the seconds that samples_per_s() divides
  double rated_s_ = 0;
  double trained_s_ = 0;
  double loss_sum_ = 0;       // the sum of the finite losses of the epoch's samples
  int64_t loss_samples_ = 0;  // the number of samples in loss_sum_

  // The following members are used by SecondsLeft().
  int64_t steps_made_ = 0;  // the number of steps that this process has made
  double begun_s_ = 0;      // the time when the current step began
  double ended_s_ = 0;      // the time when the last step ended
  // Sums over the steps after the first: of their weights, and of their seconds times their weights. Older steps have
  // smaller weights.
  double step_weight_ = 0;
  double step_s_ = 0;
  double pause_s_ = 0;  // the seconds between steps, without evaluations
  int64_t evaluations_ = 0;
  double evaluation_s_ = 0;       // the seconds of all evaluations
  double this_evaluation_s_ = 0;  // the seconds of evaluations since the last step was made
};

}  // namespace lockstep
