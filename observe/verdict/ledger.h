// Ledger: keeps account of where one rank's seconds went.
//
// Promise: the wall time of the steps is exactly the sum of computing and of the losses. A loss is subtracted from the
// time of the step in which it was measured, and the rest counts as computing.
//
// Invariants:
//   1. The time of a step lasts from the end of the step before it to its own end, so no time lies between steps. On a
//      GPU these are the times at which the GPU finished the steps.
//   2. The ideal time of steps of one shape (number of samples of the global batch) is the 5th percentile of their
//      computing time. The rest of the computing time is Loss::kOther, unless the verdict finds its cause (verdict.h).
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
  int64_t shape = 0;  // the number of samples of the global batch
  double total =
      0;  // the time since the end of the step before; the parts that follow are parts of it
  double data = 0;           // waiting for samples
  double preprocessing = 0;  // the thread that trains scaled and augmented samples
  double exchange = 0;       // handing data over to other ranks, and waiting for them
  double idle = 0;           // a GPU had nothing to do before the step, for whatever reason
  double between = 0;  // evaluation, checkpoints and everything else that Ledger::Spend() was told
  // The time that a GPU takes for a step whose whole work is queued before it begins; 0: not measured in this step. A
  // step in which it is measured has no other times.
  double unbroken = 0;
};

// One rank's account. It has no pointers, so that ranks can send it to each other as it is.
struct RankSeconds {
  int64_t steps = 0;
  double wall_s = 0;
  double ideal_s = 0;
  double computed_s = 0;  // what is left of wall_s without `lost_s`
  double unbroken_s =
      0;  // what a GPU would take if all steps were queued before it begins; 0: it was not measured
  std::array<double, kLosses.size()> lost_s{};
  // The fractions of the time for which samples were awaited that went to reading their bytes and to copying them to
  // the device. The rest went to decoding.
  double reading_share = 0;
  double copying_share = 0;
  // How long the thread that trains ran on a core within steps, and how long it was ready to run and had no core.
  double running_s = 0;
  double core_wait_s = 0;

  double& lost(Loss loss) { return lost_s[static_cast<size_t>(loss)]; }
  double lost(Loss loss) const { return lost_s[static_cast<size_t>(loss)]; }
};

class Ledger {
 public:
  // Says that `seconds` were spent on `loss` between two steps.
  void Spend(Loss loss, double seconds) { spent_[static_cast<size_t>(loss)] += seconds; }

  // Returns the sum of all that Spend() was told so far.
  double spent_s() const;

  // Adds a step. On a GPU the host may do something between two steps while the GPU still works on the steps before:
  // only the time in which the GPU is idle is lost.
  void Add(const StepSeconds& step);

  // Says that steps take another time from now on, because they are made in other pieces.
  void ForgetUnbroken() { unbroken_.clear(); }

  // Returns the account so far. All the time for which samples were awaited is in kReading, and the time for other
  // ranks in kCommunication.
  RankSeconds Sum() const;

 private:
  std::map<int64_t, TypicalTime> computing_;  // by shape
  std::array<double, kLosses.size()> spent_{};
  std::map<int64_t, double> unbroken_;  // by shape: the shortest
  double hidden_s_ = 0;                 // the part of `spent_` that the GPU did not wait for
  double between_s_ = 0;                // the part of `spent_` that lies within the time of steps
  RankSeconds sum_;
};

}  // namespace lockstep
