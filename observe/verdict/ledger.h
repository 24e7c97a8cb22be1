// Ledger: adds up what one rank spent its time on.
//
// Promise: the computing time and all losses add up to wall_s, which is the time of the steps plus the time given to
// Spend() that lies outside of the steps. A loss that is measured in a step is subtracted from the time of the step,
// and the rest of the step counts as computing.
//
// Invariants:
//   1. The time of a step lasts from the end of the previous step to the end of the step, so no time lies between two
//      steps. On a GPU a step ends when the GPU has finished it.
//   2. The ideal time of steps of one shape (number of samples of the global batch) is the 5th percentile of their
//      computing time. The rest of the computing time counts as Loss::kOther, unless the verdict (verdict.h) finds a
//      cause for this rest.
//   3. Add() takes no lock, and allocates memory only for a new shape.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "observe/verdict/seconds_report.h"
#include "observe/verdict/typical_time.h"

namespace lockstep {

// The time that one step took, in seconds.
struct StepSeconds {
  bool on_gpu = false;
  int64_t shape = 0;         // the number of samples of the global batch
  double total = 0;          // since the end of the previous step; it includes the times below
  double data = 0;           // waiting for samples
  double preprocessing = 0;  // scaling and augmenting samples on the training thread
  double exchange = 0;       // sending data to other ranks, and waiting for other ranks
  double idle = 0;           // the time in which the GPU was idle before the step, for any reason
  double between = 0;        // evaluation, checkpoints and all other time given to Ledger::Spend()
  // The time that a GPU takes for a step if all the step's work is queued before the GPU begins the step; 0: not
  // measured in this step. A step with this time has no `total`, so Ledger::Add() ignores its other times.
  double unbroken = 0;
};

// One rank's sums. The struct has no pointers, so ranks can send it to each other as raw bytes.
struct RankSeconds {
  int64_t steps = 0;
  double wall_s = 0;
  double ideal_s = 0;
  double computed_s = 0;  // wall_s minus the sum of lost_s
  // The time that a GPU would take for all steps if all the work of each step were queued before the GPU begins the
  // step; 0: not measured.
  double unbroken_s = 0;
  std::array<double, kLosses.size()> lost_s{};
  // The fractions of the waiting time for samples that were spent on reading them and on copying them to the device.
  // The rest was spent on decoding.
  double reading_share = 0;
  double copying_share = 0;
  // The seconds for which the training thread ran on a core within steps, and the seconds for which this thread was
  // ready to run but had no core.
  double running_s = 0;
  double core_wait_s = 0;
  // The seconds for which the training thread waited for other ranks while this rank's thread that exchanges data was
  // ready to run but had no core.
  double exchange_core_wait_s = 0;

  double& lost(Loss loss) { return lost_s[static_cast<size_t>(loss)]; }
  double lost(Loss loss) const { return lost_s[static_cast<size_t>(loss)]; }
};

class Ledger {
 public:
  // Adds `seconds` that were spent on `loss` between two steps.
  void Spend(Loss loss, double seconds) { spent_[static_cast<size_t>(loss)] += seconds; }

  // Returns the sum of the seconds given to Spend() so far.
  double spent_s() const;

  // Adds a step. On a GPU the host may do something else between two steps while the GPU still works on earlier steps,
  // so only the time in which the GPU is idle counts as lost.
  void Add(const StepSeconds& step);

  // Forgets StepSeconds::unbroken of the earlier steps. Must be called when the number of micro-batches changes,
  // because this changes the time of a step.
  void ForgetUnbroken() { unbroken_.clear(); }

  // Returns the sums so far. All the waiting for samples is in kReading, and all the waiting for other ranks is in
  // kCommunication.
  RankSeconds Sum() const;

 private:
  std::map<int64_t, TypicalTime> computing_;  // by shape
  std::array<double, kLosses.size()> spent_{};
  std::map<int64_t, double> unbroken_;  // by shape: the shortest StepSeconds::unbroken
  double hidden_s_ = 0;                 // the part of `spent_` during which the GPU was not idle
  double between_s_ = 0;                // the part of `spent_` that lies within the time of steps
  RankSeconds sum_;
};

}  // namespace lockstep
