// RunsNamed(): returns the runs that the user means by a name on the command line: one run, or the folds of a
// cross-validation (observe/history/training_folder.h). RUN@best and RUN@last of a cross-validation are the checkpoints
// @best and @last of each fold.
//
// what can fail -> what the caller sees -> the test that shows it (tests/folds_test.py)
//   a fold has not started yet -> Error (kUsage), which names it -> test_folds_that_are_missing
//   a file of weights, a config or a checkpoint's folder instead of a run; weights for several folds
//     -> Error (kUsage) with the name to give instead -> tests/dead_ends_test.py
//   there is no such run -> LoadRunConfig()'s error -> tests/tasks_test.py
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.pb.h"

namespace lockstep {

struct NamedRun {
  std::string name;  // the run's folder, or FOLDER@best etc., as ReadWeights() takes it
  config::Config config;
  std::string weights{};  // a file of weights that take the place of the run's; usually empty
};

// Returns the run `name`, or the folds of the cross-validation `name` in order. If `weights` is not empty, it becomes
// NamedRun::weights of the only run. Throws Error (kUsage).
std::vector<NamedRun> RunsNamed(const std::string& name, const std::string& weights = "");

}  // namespace lockstep
