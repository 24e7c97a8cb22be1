#include "data/dataset/split.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "data/dataset/permutation.h"

namespace lockstep {
namespace {

std::vector<int64_t> RandomOrder(int64_t count, uint64_t seed) {
  const Permutation order(count, seed, ~uint64_t{0});
  std::vector<int64_t> numbers(count);
  for (int64_t position = 0; position < count; ++position) numbers[position] = order.Of(position);
  return numbers;
}

// Returns the fold of each sample. The samples are put in a random order and, for kStratified, then sorted by class
// without changing the order within a class. The sample at position i of this order gets fold i % count.
std::vector<int64_t> DealtOut(int64_t samples, const FoldOptions& options,
                              std::span<const int64_t> classes) {
  std::vector<int64_t> order = RandomOrder(samples, options.seed);
  if (options.by == FoldsBy::kStratified) {
    std::ranges::stable_sort(order, {}, [&](int64_t sample) { return classes[sample]; });
  }
  std::vector<int64_t> folds(samples);
  for (int64_t i = 0; i < samples; ++i) folds[order[i]] = i % options.count;
  return folds;
}

std::vector<int64_t> FoldsOfGroups(const FoldOptions& options, std::span<const int64_t> groups) {
  const int64_t count = 1 + *std::ranges::max_element(groups);
  if (count < options.count) {
    throw UsageError("data.folds: {} folds of {} group{}", options.count, count,
                     count == 1 ? "" : "s");
  }
  std::vector<int64_t> sizes(count);
  for (const int64_t group : groups) ++sizes[group];
  std::vector<int64_t> order = RandomOrder(count, options.seed);
  std::ranges::stable_sort(order, std::greater{}, [&](int64_t group) { return sizes[group]; });
  std::vector<int64_t> fold_sizes(options.count);
  std::vector<int64_t> fold_of_group(count);
  for (const int64_t group : order) {
    const auto smallest = std::ranges::min_element(fold_sizes);
    *smallest += sizes[group];
    fold_of_group[group] = smallest - fold_sizes.begin();
  }
  std::vector<int64_t> folds;
  folds.reserve(groups.size());
  for (const int64_t group : groups) folds.push_back(fold_of_group[group]);
  return folds;
}

Split SplitByTime(int64_t samples, const FoldOptions& options) {
  const int64_t part = samples / (options.count + 1);
  const int64_t begin = samples - (options.count - options.fold) * part;
  Split split{.train = std::vector<int64_t>(begin), .validation = std::vector<int64_t>(part)};
  std::iota(split.train.begin(), split.train.end(), 0);
  std::iota(split.validation.begin(), split.validation.end(), begin);
  return split;
}

}  // namespace

int64_t HeldBackOf(int64_t samples, double validation_fraction) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(samples) * validation_fraction));
}

Split SplitBySeed(int64_t samples, double validation_fraction, uint64_t seed) {
  const int64_t validation = HeldBackOf(samples, validation_fraction);
  if (validation < 1 || validation >= samples) {
    throw UsageError(
        "validation_fraction {} of {} samples leaves {} to train on and {} to validate",
        validation_fraction, samples, samples - validation, validation);
  }
  const std::vector<int64_t> order = RandomOrder(samples, seed);
  const auto first_held_back = order.end() - validation;
  Split split{.train{order.begin(), first_held_back}, .validation{first_held_back, order.end()}};
  std::ranges::sort(split.train);
  std::ranges::sort(split.validation);
  return split;
}

Split SplitByFold(int64_t samples, const FoldOptions& options, std::span<const int64_t> keys) {
  const int64_t parts = options.by == FoldsBy::kTime ? options.count + 1 : options.count;
  if (samples < parts) {
    throw UsageError("data.folds: {} folds of {} sample{}", options.count, samples,
                     samples == 1 ? "" : "s");
  }
  if (options.by == FoldsBy::kTime) return SplitByTime(samples, options);
  const std::vector<int64_t> folds = options.by == FoldsBy::kGroup
                                         ? FoldsOfGroups(options, keys)
                                         : DealtOut(samples, options, keys);
  Split split;
  for (int64_t sample = 0; sample < samples; ++sample) {
    (folds[sample] == options.fold ? split.validation : split.train).push_back(sample);
  }
  return split;
}

}  // namespace lockstep
