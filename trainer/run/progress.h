// Progress: how far a run is, how fast it trains and how long it still takes, and the mean training loss of an epoch.
//
// Promise: the time that is left changes smoothly. It adds up what is still to come: the steps, at the exponentially
// smoothed time of a step; the evaluations, at their mean time; and the checkpoints and everything else between two
// steps, at their mean time for each step so far. The first step, which warms up, does not count.
//
// Protocol, on the thread that trains:
//   1. Begin(). Then, for each step, BeginStep(), OnLoss() of steps whose loss has come, TakeLine() where a line is
//      due, and EndStep(). CountFromHere() after the first step.
//   2. When all losses of an epoch have come: EndEpoch(), OnEvaluation(), BeginEpoch(). What else lies between
//      EndStep() and the next BeginStep() is a pause, as for a checkpoint.
//
// what can fail -> what the caller sees -> the test that shows it (trainer/run/progress_test.cc)
//   no step but the first was made -> seconds_left is negative -> Progress.KnowsNothingAfterTheFirstStep
//   a loss is not finite -> it is left out of the epoch's mean -> Progress.LeavesLossesOutThatAreNotFinite
//   all are, or there are none -> the mean is NaN -> likewise
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/clock.h"

namespace lockstep {

struct ProgressPlan {
  int64_t steps = 0;  // optimizer steps of the run, all together
  int64_t steps_per_epoch = 1;
  int64_t global_batch = 0;
  int64_t samples_per_epoch = 0;
  bool evaluates = false;  // at the end of each epoch, and of the run
};

class Progress {
 public:
  // What a step line says.
  struct Line {
    double seconds = 0;  // since the line before
    double samples_per_s = 0;
    double seconds_left = -1;  // until the run's end; negative: not known yet
  };
  struct Epoch {
    double seconds = 0;  // of training, without the process's first step
    double samples_per_s = 0;
    double loss =
        0;  // the mean over the samples of the steps whose loss came since the epoch before
  };

  // `now`: in seconds.
  explicit Progress(const ProgressPlan& plan, std::function<double()> now = SecondsSinceBoot)
      : plan_(plan), now_(std::move(now)) {}

  // `step`, counted from 0, is the first that this process makes. And: it was made, and seconds count from here.
  void Begin(int64_t step);
  void CountFromHere();

  // Step `step` begins, and: it was made.
  void BeginStep(int64_t step);
  void EndStep();

  // `steps_done` steps were made, of which the last may not have ended yet.
  Line TakeLine(int64_t steps_done);

  // The epoch of step `steps_done` has ended; and: its validation has, too.
  Epoch EndEpoch(int64_t steps_done);
  void BeginEpoch(int64_t steps_done);

  // The validation that has just ended took so long.
  void OnEvaluation(double seconds);

  // `step`, from 1, had this loss, the mean over its samples.
  void OnLoss(int64_t step, double loss);

  // Returns the number of samples, of all ranks, that step `step` (counted from 1) trains on.
  int64_t SamplesOf(int64_t step) const { return SamplesIn(step) - SamplesIn(step - 1); }

  // The step that is under way or was made last, from 1; 0: none.
  int64_t step() const { return step_; }

  // Of training: without evaluations and without the first step; after the first epoch if there is a second.
  double samples_per_s() const;

  // Seconds of training since the first step.
  double trained_s() const { return trained_s_; }

 private:
  // Returns the number of samples on which the first `steps` optimizer steps train.
  int64_t SamplesIn(int64_t steps) const;
  double SecondsLeft(int64_t steps_done) const;

  ProgressPlan plan_;
  std::function<double()> now_;
  int64_t first_step_ = 0;  // of this process, from 0
  int64_t step_ = 0;

  int64_t line_step_ = 0;  // steps done at the last line, and when that was
  double line_s_ = 0;
  double epoch_s_ = 0;  // when the epoch began
  int64_t rated_samples_ = 0;
  double rated_s_ = 0;
  double trained_s_ = 0;
  double loss_sum_ = 0;  // times its samples
  int64_t loss_samples_ = 0;

  // For the time that is left.
  int64_t steps_made_ = 0;  // by this process
  double begun_s_ = 0;      // when the step under way did
  double ended_s_ = 0;      // when the last one did
  double step_weight_ = 0;  // of the steps after the first, the older the less
  double step_s_ = 0;       // likewise, their seconds
  double pause_s_ = 0;      // between steps, without evaluations
  int64_t evaluations_ = 0;
  double evaluation_s_ = 0;       // of all
  double this_evaluation_s_ = 0;  // since the last step was made
};

}  // namespace lockstep
