// RunsNamed(): returns the runs that the user means by a name on the command line: one run, or the folds of a
// cross-validation.
//
// Layout: `lockstep train CONFIG --folds 5` trains the runs RUN/fold-0 to RUN/fold-4. RUN itself has no config and no
// weights of its own; a command that takes RUN uses all of its folds. RUN@best and RUN@last are the checkpoints @best
// and @last of each fold.
//
// what can fail -> what the caller sees -> the test that shows it (tests/folds_test.py)
//   a fold has not started yet -> Error (kUsage), which names it -> test_folds_that_are_missing
//   a file of weights, a config or a checkpoint's folder instead of a run; weights for several folds
//     -> Error (kUsage) with the name to give instead -> tests/dead_ends_test.py
//   there is no such run -> LoadRunConfig()'s error -> tests/tasks_test.py
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/schema/config.pb.h"

namespace lockstep {

struct NamedRun {
  std::string name;  // the run's folder, or FOLDER@best etc., as ReadWeights() takes it
  config::Config config;
  std::string weights{};  // a file of weights that take the place of the run's; usually empty
};

// Returns the folder of a fold of the cross-validation in `run_dir`.
std::string FoldRunDir(const std::string& run_dir, int64_t fold);

// Returns whether `run_dir` is the folder of a cross-validation whose fold 0 has started.
bool HoldsFolds(const std::string& run_dir);

// Returns the run `name`, or the folds of the cross-validation `name` in order. If `weights` is not empty, it becomes
// NamedRun::weights of the only run. Throws Error (kUsage).
std::vector<NamedRun> RunsNamed(const std::string& name, const std::string& weights = "");

}  // namespace lockstep
