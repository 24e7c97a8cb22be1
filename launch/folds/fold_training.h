// TrainFolds(): trains the folds of a cross-validation, each in a process of its own, several at a time.
//
// Promise: each fold is a run (use/named_runs.h says where), so the same command goes on where it was stopped or
// killed, and what it computes does not depend on that (launch/folds/fold_plan.h). A fold that is done is not trained
// again. If one fails, the others save their state and stop.
//
// Protocol:
//   1. start the folds in their order, as many at a time as the plan says; what a fold prints goes to the end of
//      RUN/fold-K.txt
//   2. wait; for each fold that has ended, print a line with its best metric, or the line of its error
//   3. SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGUSR2 ask all folds to save their state and stop (SIGTERM), and no other fold is
//      started; a second one kills them
//   4. if this process is killed, the kernel asks the folds to stop (launch/machine/child_process.h)
//
// what can fail -> what the caller sees -> the test that shows it (tests/folds_test.py)
//   the folder holds a run of its own -> Error (kUsage) -> test_a_folder_with_a_run
//   a fold fails -> Error with its status, number and line -> test_a_fold_that_fails
//   a signal, or the time is over -> status 130 or 75 -> test_a_signal_stops_all_folds
//   this process is killed -> the same command goes on -> test_folds_that_are_killed
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "launch/folds/fold_plan.h"

namespace lockstep {

// Returns kDone, kStopped or kInterrupted. Throws Error.
ExitStatus TrainFolds(const FoldPlan& plan);

// Runs a command that uses the folds, with the output and the signals of this process, and returns its status. Throws Error
// (kUsage).
ExitStatus RunOnFolds(const std::vector<std::string>& command);

}  // namespace lockstep
