// FoldPlan: how many folds are trained at a time, and with which command each of them.
//
// Promise: a fold has as many CPU threads in every start of a cross-validation on the same machine, whatever the other
// folds do. So a fold that was stopped computes what it would have computed; with `deterministic: true`, bit for bit.
//
// How: each fold has one GPU, and folds that are trained at a time have different ones, as far as there are some. On a CPU folds are trained side by side, and
// the cores are divided among them, which uses them better than many threads of one small training would. A command with
// options that start ranks has all GPUs and cores to itself.
//
// (launch/folds/fold_plan_test.cc)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct FoldPlan {
  std::vector<std::string>
      program;  // this program, and the words of the user's command without --folds and --side-by-side
  std::string run_dir;              // of the cross-validation
  int64_t count = 0;                // of folds
  std::vector<std::string> gpus{};  // that folds are trained on; empty: a CPU, or as ranks
  int cores = 1;                    // that this process may use
  bool starts_ranks = false;        // whether the command starts ranks
  int64_t asked = 0;                // how many the user wants at a time; 0: as the machine has room

  // How many folds are trained at a time.
  int64_t SideBySide() const;

  // Returns the command that trains a fold into `fold_dir`. Each of the folds that are trained at a time has another
  // `place`, in [0, SideBySide()).
  std::vector<std::string> CommandOf(int64_t fold, int64_t place,
                                     const std::string& fold_dir) const;
};

// Returns `words` without the options of `names`, each of which has a value ("--folds 5" or "--folds=5").
std::vector<std::string> WithoutOptions(const std::vector<std::string>& words,
                                        const std::vector<std::string>& names);

}  // namespace lockstep
