// Progress: computes how far a run is, how fast it trains, how long it still takes, and the mean training loss of an
// epoch.
//
// Promise: the remaining time changes smoothly. It is the sum of three estimates: the remaining steps at the
// exponentially smoothed time of a step, the remaining evaluations at their mean time, and the checkpoints and other
// pauses between steps at their mean time per step so far. The first step of a process does not count, because it warms
// up.
//
// Protocol, on the thread that trains:
//   1. Call Begin(). Then call for each step BeginStep(), OnLoss() for the steps whose loss has arrived, TakeLine() if
//      a line is due, and EndStep(). Call CountFromHere() after the first step.
//   2. When all losses of an epoch have arrived, call EndEpoch(), OnEvaluation() if there was an evaluation, and
//      BeginEpoch(). All other time between EndStep() and the next BeginStep() counts as a pause.
//
// what can fail -> what the caller sees -> the test that shows it (trainer/run/progress_test.cc)
//   only the first step was made -> seconds_left is negative -> Progress.KnowsNothingAfterTheFirstStep
//   a loss is not finite -> the epoch's mean leaves it out -> Progress.LeavesLossesOutThatAreNotFinite
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
  // The figures of a step line.
  struct Line {
    double seconds = 0;  // the time since the previous line
    double samples_per_s = 0;
    double seconds_left = -1;  // the time until the run's end; negative if it is not known yet
  };
  // The figures of an epoch.
  struct Epoch {
    double seconds = 0;  // the time of training, without the process's first step
    double samples_per_s = 0;
    double loss = 0;  // the mean over the samples of the steps whose loss is finite
  };

  // `now` returns the time in seconds.
  explicit Progress(const ProgressPlan& plan, std::function<double()> now = SecondsSinceBoot)
      : plan_(plan), now_(std::move(now)) {}

  // Begin() says that `step`, counted from 0, is the first step that this process makes. CountFromHere() says that this
  // step was made, and that the time of training counts from now on.
  void Begin(int64_t step);
  void CountFromHere();

  // BeginStep() says that `step`, counted from 0, begins. EndStep() says that this step has ended.
  void BeginStep(int64_t step);
  void EndStep();

  // Returns the figures of the line after `steps_done` steps. The last of these steps may still be under way.
  Line TakeLine(int64_t steps_done);

  // EndEpoch() says that the epoch of step `steps_done`, counted from 1, has ended, and returns its figures.
  // BeginEpoch() says that its evaluation has ended, too.
  Epoch EndEpoch(int64_t steps_done);
  void BeginEpoch(int64_t steps_done);

  // Says how long the evaluation took that has just ended.
  void OnEvaluation(double seconds);

  // Says that `step`, counted from 1, had this loss, which is the mean over the step's samples.
  void OnLoss(int64_t step, double loss);

  // Returns the number of samples, of all ranks, that step `step` (counted from 1) trains on.
  int64_t SamplesOf(int64_t step) const { return SamplesIn(step) - SamplesIn(step - 1); }

  // Returns the step that is under way or was made last, counted from 1; 0 if there is none.
  int64_t step() const { return step_; }

  // Returns the speed of training, without evaluations and without the first step. If there is a second epoch, the
  // first one does not count.
  double samples_per_s() const;

  // Returns the seconds of training since the first step.
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

  int64_t line_step_ = 0;  // the number of steps at the last line
  double line_s_ = 0;      // when the last line was taken
  double epoch_s_ = 0;     // when the epoch began
  int64_t rated_samples_ = 0;
  double rated_s_ = 0;
  double trained_s_ = 0;
  double loss_sum_ = 0;  // the sum of the losses of all samples
  int64_t loss_samples_ = 0;

  // The following members are for SecondsLeft().
  int64_t steps_made_ = 0;  // the number of steps that this process has made
  double begun_s_ = 0;      // when the step under way began
  double ended_s_ = 0;      // when the last step ended
  // The sums of the weights and of the weighted seconds of the steps after the first. Older steps have smaller weights.
  double step_weight_ = 0;
  double step_s_ = 0;
  double pause_s_ = 0;  // the seconds between steps, without evaluations
  int64_t evaluations_ = 0;
  double evaluation_s_ = 0;       // the seconds of all evaluations
  double this_evaluation_s_ = 0;  // the seconds of evaluations since the last step was made
};

}  // namespace lockstep
