// Divides the samples of the training files into those that are trained on and those that are held back for validation.
//
// Promise: the result depends on the arguments alone, so that all ranks and a resumed run have the same division. No
// sample is in both parts. Both lists are in ascending order.
//
// Invariants:
//   1. Samples are put in the order that Permutation(samples, seed, 2^64 - 1) gives (data/dataset/permutation.h). For
//      kStratified they are then sorted by class, and samples of the same class stay in that order. Groups are put in
//      the order that Permutation(groups, seed, 2^64 - 1) gives, and are then sorted by size; groups of equal size stay
//      in that order. No epoch uses the round 2^64 - 1 of Permutation, so a division does not depend on the order of
//      any epoch. FoldsBy::kTime uses no random order.
//   2. In a cross-validation, each sample is held back by exactly one fold. FoldsBy::kTime is the exception: no fold
//      holds back the samples of part 1.
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

// Returns how many samples SplitBySeed() holds back: samples * validation_fraction, rounded up.
int64_t HeldBackOf(int64_t samples, double validation_fraction);

// Returns a split that holds back HeldBackOf() random samples. Throws Error (kUsage) if one part would be empty.
Split SplitBySeed(int64_t samples, double validation_fraction, uint64_t seed);

enum class FoldsBy : uint8_t {
  kPlain,       // samples are assigned to the folds in random order
  kStratified,  // each class is spread evenly over the folds, as in scikit-learn's StratifiedKFold
  // All samples of a group are in one fold. The largest groups are assigned first, each to the fold that has the fewest
  // samples so far, as in scikit-learn's GroupKFold.
  kGroup,
  // The samples, in the order of the files, form the parts 1 to count + 1. Each of the parts 2 to count + 1 has
  // samples / (count + 1) samples, rounded down, and part 1 has all samples before part 2. Fold i, from 0, validates on
  // part i + 2, and trains on all samples before this part, as in scikit-learn's TimeSeriesSplit.
  kTime,
};

struct FoldOptions {
  int64_t count = 0;  // the number of folds, at least 2
  int64_t fold = 0;   // the index of the fold that is held back, from 0
  FoldsBy by = FoldsBy::kPlain;
  uint64_t seed = 0;
};

// Returns the split that holds back the fold options.fold. `keys` holds the class of each sample for kStratified, and
// the group of each sample, in [0, number of groups), for kGroup. The other values of FoldsBy do not use `keys`. Throws
// Error (kUsage).
Split SplitByFold(int64_t samples, const FoldOptions& options, std::span<const int64_t> keys);

}  // namespace lockstep
