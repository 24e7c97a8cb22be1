// FoldTraining: trains the folds of a cross-validation, several at the same time and each in its own process, and then
// runs commands that use the trained folds.
//
// Promise: each fold is a run of its own (observe/history/training_folder.h says in which folder). If the command was
// stopped or killed, the same command therefore continues each fold, and the results are the same as without the
// interruption (launch/folds/fold_plan.h). A fold that is done is not trained again. The fold's own process decides
// whether the fold is done, because the user may have changed the config to more epochs. If a fold fails, the others
// save their state and stop.
//
// Protocol: the folds, and then the commands, are the jobs of one crew (launch/crew/crew.h). The crew starts the
// processes, handles signals and writes RUN/crew.json. The output of fold K is appended to RUN/fold-K.txt. Train()
// prints the folds' warnings, such as how a column of a table is read, each different one once. For each fold that has
// ended it prints a line with the fold's best metric.
//
// what can fail -> what the caller sees -> the test that shows it (tests/folds_test.py)
//   the folder is the run folder of a plain run -> Error (kUsage) -> test_a_folder_with_a_run
//   a fold fails -> Error with the fold's exit status, number and error message -> test_a_fold_that_fails
//   a signal comes, or a fold stops because its time is over -> Train() returns kInterrupted (130) or kStopped (75)
//     -> test_a_signal_stops_all_folds
//   `lockstep stop`, or a file STOP in the run folder -> as after SIGINT -> test_a_request_to_stop_stops_all_folds
//   this process is killed -> the same command continues the folds -> test_folds_that_are_killed
//   another command trains the same folds -> Error (kUsage) -> test_folds_have_one_owner
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/crew/crew.h"
#include "launch/folds/fold_plan.h"
#include "observe/history/run_history.h"

namespace lockstep {

class FoldTraining {
 public:
  // Makes the run folder, and locks it for this process. Throws Error (kUsage).
  explicit FoldTraining(FoldPlan plan);

  // Trains all folds. Call it once. Returns kDone, kStopped or kInterrupted. Throws Error, also if a fold fails.
  ExitStatus Train();

  // Runs a command as a job of the crew, and returns the command's exit status. The command uses the trained folds, and
  // prints to the standard output and error of this process. `name` is the name of the job in crew.json. Throws Error
  // (kUsage, kPeer).
  ExitStatus Run(const std::string& name, const std::vector<std::string>& command);

 private:
  void TellWarnings();
  std::string Progress();
  std::string TextOf(int64_t fold);

  FoldPlan plan_;
  Crew crew_;
  std::set<std::string> told_;        // the folds' warnings that were printed
  std::deque<RunHistory> histories_;  // one for each fold
};

}  // namespace lockstep
