#include "data/feed/sampler.h"

#include <algorithm>

#include "base/ceil_divide.h"
#include "base/error.h"
#include "data/dataset/permutation.h"

namespace lockstep {
namespace {

int64_t StepsPerEpoch(const SamplerOptions& options) {
  if (options.samples < 1) throw UsageError("the training set has no samples");
  const int64_t pieces = int64_t{options.ranks} * options.accumulation;
  if (options.global_batch < pieces) {
    throw UsageError(
        "global_batch {} is too small for {} ranks with accumulation {}: give it {} or more",
        options.global_batch, options.ranks, options.accumulation, pieces);
  }
  const int64_t steps = options.last_batch == LastBatch::kKeep
                            ? CeilDivide(options.samples, options.global_batch)
                            : options.samples / options.global_batch;
  if (steps == 0) {
    throw UsageError(
        "last_batch: DROP leaves no step: global_batch is {}, the training set has {} samples",
        options.global_batch, options.samples);
  }
  return steps;
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options)
    : options_(options), steps_per_epoch_(StepsPerEpoch(options)) {}

int64_t Sampler::max_micro_batch() const {
  const int64_t pieces = int64_t{options_.ranks} * options_.accumulation;
  return CeilDivide(std::min(options_.global_batch, options_.samples), pieces);
}

MicroBatch Sampler::Next() {
  MicroBatch batch;
  batch.epoch = step_ / steps_per_epoch_;
  batch.step = step_;
  batch.micro = micro_;

  const int64_t step_in_epoch = step_ % steps_per_epoch_;
  const int64_t first = step_in_epoch * options_.global_batch;
  batch.global_count = std::min(options_.global_batch, options_.samples - first);

  const int64_t pieces = int64_t{options_.ranks} * options_.accumulation;
  const int64_t piece = int64_t{micro_} * options_.ranks + options_.rank;
  const int64_t begin = first + batch.global_count * piece / pieces;
  const int64_t end = first + batch.global_count * (piece + 1) / pieces;

  const Permutation order(options_.samples, options_.seed, static_cast<uint64_t>(batch.epoch));
  batch.indices.reserve(end - begin);
  for (int64_t position = begin; position < end; ++position) {
    const int64_t place = options_.shuffle ? order.Of(position) : position;
    batch.indices.push_back(options_.draws ? options_.draws->At(place, batch.epoch) : place);
  }

  if (++micro_ == options_.accumulation) {
    micro_ = 0;
    ++step_;
  }
  return batch;
}

void Sampler::Seek(int64_t step) {
  step_ = step;
  micro_ = 0;
}

}  // namespace lockstep
