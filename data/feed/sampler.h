// Sampler: chooses the samples on which this rank trains, micro-batch by micro-batch, for any number of epochs.
//
// Promise: over all ranks, every epoch takes each of `samples` samples exactly once. With SamplerOptions::shuffle the
// order differs from epoch to epoch. (With LastBatch::kDrop an epoch takes only the samples at the first
// steps_per_epoch * global_batch positions of its order.) The samples of optimizer step s do not depend on the number
// of ranks or on the accumulation. Only the assignment of these samples to ranks depends on these two numbers. With
// SamplerOptions::draws, an epoch makes `samples` weighted draws instead (data/feed/weighted_draws.h).
//
// Invariants:
//   1. The order of epoch e, in which it takes the samples or makes the draws, is the one that Permutation(samples,
//      seed, e) gives, or 0, 1, 2, ... without shuffling.
//   2. Step s of the epoch takes positions [s * global_batch, min((s + 1) * global_batch,
//      samples)).
//   3. The n positions of a step are cut into ranks * accumulation pieces, as equal as can be: piece j is
//      [n * j / pieces, n * (j + 1) / pieces). Micro-batch m of rank r is piece m * ranks + r. A piece of a short last
//      batch may be empty.
//   4. Every rank makes the same number of steps and micro-batches.
//   5. Next() after Seek(s) returns what the (s * accumulation + 1)th Next() from the start returns. Seek() and Next()
//      take O(micro-batch) time, and the memory of the Sampler itself does not grow with `samples` (that of
//      SamplerOptions::draws does).
//
// what can fail -> what the caller sees -> the test that shows it
//   no samples, fewer samples in a global batch than micro-batches, or an epoch without a step -> Error (kUsage)
//     -> Sampler.RefusesWhatLeavesNothingToDo
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/feed/weighted_draws.h"

namespace lockstep {

enum class LastBatch { kKeep, kDrop };

struct SamplerOptions {
  int64_t samples = 0;
  int64_t global_batch = 1;  // the number of samples of one optimizer step, over all ranks
  int accumulation = 1;      // the number of micro-batches of one rank in a step
  int rank = 0;
  int ranks = 1;
  uint64_t seed = 0;
  bool shuffle = true;
  LastBatch last_batch = LastBatch::kKeep;
  // The draws that choose an epoch's samples; null: each sample is taken once. `draws` may be set only if `shuffle` is
  // true.
  std::shared_ptr<const WeightedDraws> draws{};
};

struct MicroBatch {
  int64_t epoch = 0;  // counted from 0
  int64_t step = 0;   // the optimizer step, counted from 0 from the start of training
  int micro = 0;      // the number of the micro-batch in the step, from 0
  // The number of samples of the whole step, over all ranks and micro-batches.
  int64_t global_count = 0;
  std::vector<int64_t> indices;
};

class Sampler {
 public:
  // Throws Error (kUsage).
  explicit Sampler(const SamplerOptions& options);

  int64_t steps_per_epoch() const { return steps_per_epoch_; }

  // Returns the number of samples of the largest micro-batch that any rank ever gets.
  int64_t max_micro_batch() const;

  // Returns this rank's next micro-batch. There is always a next micro-batch, because epochs follow each other without
  // end.
  MicroBatch Next();

  // Makes the next call of Next() return micro-batch 0 of `step`, counted from the start of training.
  void Seek(int64_t step);

 private:
  SamplerOptions options_;
  int64_t steps_per_epoch_;
  int64_t step_ = 0;
  int micro_ = 0;
};

}  // namespace lockstep
