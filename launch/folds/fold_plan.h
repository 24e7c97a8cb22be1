// FoldPlan: says how many folds of a cross-validation are trained at the same time, and with which command each fold is
// trained.
//
// Promise: if the same command is started again on the same machine, each fold gets the same number of CPU threads as
// before, whether or not other folds still train. The result of a fold therefore does not depend on whether its
// training was stopped and continued. With `deterministic: true` even every bit of the result is the same.
//
// How: each fold trains on one GPU. Folds that train at the same time have different GPUs if there are enough GPUs. On
// a CPU the cores are divided among the folds that train at the same time, because several small trainings use the
// cores better than one training with many threads. If the user's command has options that start ranks, each fold
// trains with all of these ranks, and one fold trains at a time unless --side-by-side asks for more.
//
// The tests are in launch/folds/fold_plan_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct FoldPlan {
  std::vector<std::string>
      program;          // this program, and the user's words without --folds and --side-by-side
  std::string run_dir;  // the run folder of the cross-validation
  int64_t count = 0;    // the number of folds
  std::vector<std::string> gpus{};  // GPUs to train on; empty: folds train on the CPU or as ranks
  int cores = 1;                    // the number of cores that this process may use
  bool starts_ranks = false;        // whether the command starts ranks
  int64_t asked = 0;                // how many folds at a time the user wants; 0: the plan decides

  // Returns how many folds are trained at the same time.
  int64_t SideBySide() const;

  // Returns the command that trains a fold into `fold_dir`. Folds that are trained at the same time have different
  // values of `place`, in [0, SideBySide()).
  std::vector<std::string> CommandOf(int64_t fold, int64_t place,
                                     const std::string& fold_dir) const;
};

// Returns `words` without the options that `names` lists and without the values of these options ("--folds 5" or
// "--folds=5").
std::vector<std::string> WithoutOptions(const std::vector<std::string>& words,
                                        const std::vector<std::string>& names);

}  // namespace lockstep
