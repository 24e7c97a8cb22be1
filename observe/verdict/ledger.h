// Ledger: keeps account of where one rank's seconds went.
//
// Promise: the wall time of the steps is the sum of what is computed and of the losses, exactly, because a loss is
// taken from the time of the step in which it was measured and what is left counts as computing.
//
// Invariants:
//   1. A step's time is that from the end of the step before it to its own end, so there is nothing between steps. On a
//      GPU the ends are the GPU's own.
//   2. The time that steps of one shape (samples of the global batch) ideally take is the 5th percentile of their
//      computing time. What computing took beyond that is Loss::kOther, unless somebody knows better (verdict.h).
//   3. Add() takes no lock and no memory for a shape that it knows.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "observe/verdict/seconds_report.h"
#include "observe/verdict/typical_time.h"

namespace lockstep {

// What one step took, in seconds.
struct StepSeconds {
  int64_t shape = 0;         // samples of the global batch
  double total = 0;          // since the end of the step before
  double data = 0;           // of it: waiting for samples
  double preprocessing = 0;  // of it: the thread that trains scaled and augmented them
  double exchange = 0;       // of it: waiting for other ranks
  double idle = 0;           // of it: a GPU that had nothing to do, for whatever reason
  double between = 0;  // of it: evaluation, checkpoints and what else Ledger::Spend() was told
};

// One rank's account. It has no pointers: ranks send it to each other as it is.
struct RankSeconds {
  int64_t steps = 0;
  double wall_s = 0;
  double ideal_s = 0;
  double computed_s = 0;  // what is left of wall_s without `lost_s`; at least ideal_s, mostly
  std::array<double, kLosses.size()> lost_s{};
  // Of the time that was waited for samples: for their bytes, and for their copy to the device. The rest is decoding.
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
  // `seconds` were spent between two steps, on what `loss` says.
  void Spend(Loss loss, double seconds) { spent_[static_cast<size_t>(loss)] += seconds; }

  // All that Spend() was told so far.
  double spent_s() const;

  void Add(const StepSeconds& step);

  // So far. Its lost_s have the time that was waited for samples in kReading, all of it, and the time that was waited
  // for other ranks in kCommunication.
  RankSeconds Sum() const;

  // Of the steps so far of the shape that most of them have: seconds of an ideal one; 0: there are none.
  double ideal_step_s() const;

 private:
  std::map<int64_t, TypicalTime> computing_;  // by shape
  std::array<double, kLosses.size()> spent_{};
  double between_s_ = 0;  // of what was spent, in the steps' time
  RankSeconds sum_;
};

}  // namespace lockstep
