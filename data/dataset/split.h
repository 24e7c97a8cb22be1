// Divides the samples of the training files into those that are trained on and those that are held back for validation.
//
// Promise: the result depends on the arguments alone, so that all ranks and a resumed run have the same division. No
// sample is in both parts. Both lists are in ascending order.
//
// Invariants:
//   1. The order in which samples are assigned is Permutation(samples, seed, 2^64 - 1) (data/dataset/permutation.h). No
//      epoch uses this round, so a division does not depend on the order of any epoch.
//   2. The folds of a cross-validation hold back each sample exactly once. FoldsBy::kTime is the exception: it never holds
//      the oldest samples back.
//
// what can fail -> what the caller sees -> the test that shows it (data/dataset/split_test.cc)
//   one part would be empty, or there are fewer groups than folds -> Error (kUsage) with the numbers -> *.Refuses*
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

struct Split {
  std::vector<int64_t> train;
  std::vector<int64_t> validation;
};

// Returns how many of the samples are held back for `validation_fraction`.
int64_t HeldBackOf(int64_t samples, double validation_fraction);

// Holds HeldBackOf() samples back. Throws Error (kUsage).
Split SplitBySeed(int64_t samples, double validation_fraction, uint64_t seed);

enum class FoldsBy : uint8_t {
  kPlain,       // in random order
  kStratified,  // each class is spread evenly over the folds; as scikit-learn's StratifiedKFold
  // All samples of a group are in one fold. The largest groups are assigned first, each to the fold that has the fewest
  // samples by then; as scikit-learn's GroupKFold.
  kGroup,
  // In the order of the files: fold i validates on part i + 2 of count + 1 equal parts, and trains on all samples before
  // it; as scikit-learn's TimeSeriesSplit.
  kTime,
};

struct FoldOptions {
  int64_t count = 0;  // the number of folds, at least 2
  int64_t fold = 0;   // the index of the fold that is held back, from 0
  FoldsBy by = FoldsBy::kPlain;
  uint64_t seed = 0;
};

// `keys` holds the class of each sample for kStratified, and its group, in [0, number of groups), for kGroup. Otherwise
// `keys` is not used. Throws Error (kUsage).
Split SplitByFold(int64_t samples, const FoldOptions& options, std::span<const int64_t> keys);

}  // namespace lockstep
