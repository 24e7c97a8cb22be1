// FoldTraining: trains the folds of a cross-validation, each in a process of its own, several at a time, and runs the
// commands that use them.
//
// Promise: each fold is a run (use/named_runs.h says where), so the same command goes on where it was stopped or
// killed, and what it computes does not depend on that (launch/folds/fold_plan.h). A fold that is done is not trained
// again, which its own process finds out: another config may ask for more epochs. If one fails, the others save their
// state and stop.
//
// Protocol: the folds, and then the commands, are the jobs of one crew (launch/crew/crew.h), which has the processes,
// the signals and RUN/crew.json. What a fold prints goes to the end of RUN/fold-K.txt. For each fold that has ended,
// Train() prints a line with its best metric.
//
// what can fail -> what the caller sees -> the test that shows it (tests/folds_test.py)
//   the folder holds a run of its own -> Error (kUsage) -> test_a_folder_with_a_run
//   a fold fails -> Error with its status, number and line -> test_a_fold_that_fails
//   a signal, or the time is over -> status 130 or 75 -> test_a_signal_stops_all_folds
//   this process is killed -> the same command goes on -> test_folds_that_are_killed
//   another command trains the same folds -> Error (kUsage) -> test_folds_have_one_owner
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/crew/crew.h"
#include "launch/folds/fold_plan.h"
#include "observe/history/run_history.h"

namespace lockstep {

class FoldTraining {
 public:
  // Throws Error (kUsage).
  explicit FoldTraining(FoldPlan plan);

  // Call it once. Returns kDone, kStopped or kInterrupted. Throws Error.
  ExitStatus Train();

  // Runs a command that uses the folds, with the output and the signals of this process, and returns its status. `name`
  // is the command's in crew.json. Throws Error (kUsage, kPeer).
  ExitStatus Run(const std::string& name, const std::vector<std::string>& command);

 private:
  std::string Progress();
  std::string TextOf(int64_t fold);

  FoldPlan plan_;
  Crew crew_;
  std::deque<RunHistory> histories_;  // of the folds
};

}  // namespace lockstep
