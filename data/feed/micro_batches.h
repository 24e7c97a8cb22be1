// MicroBatches: the interface of a source that gives a step its micro-batches on the device.
//
//   DeviceFeed (data/feed/device_feed.h)   the samples of a data set, in the order of training
//   PinnedBatches                          the same micro-batches again and again: a measurement of steps repeats one,
//                                          and a CUDA graph reads those in its input buffers
//   KeptBatch                              first a micro-batch that was taken from another source before, then the
//                                          micro-batches that follow it there
//
// A foretold GPU, which is simulated (base/tensor/foretold_gpu.h), has a source of its own (trainer/run/foretell.cc).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "data/feed/sampler.h"

namespace lockstep {

struct DeviceBatch {
  MicroBatch origin;
  at::Tensor input;   // [count, shape...], in the data set's dtype
  at::Tensor target;  // [count, spec.target_shape()...]
  at::Tensor draws;   // float32 [count, kAugmentDraws]; undefined if the loader draws nothing
};

class MicroBatches {
 public:
  MicroBatches() = default;
  virtual ~MicroBatches() = default;
  MicroBatches(const MicroBatches&) = delete;
  MicroBatches& operator=(const MicroBatches&) = delete;

  // Returns the next micro-batch, for work on the current stream. It is valid until the next call.
  virtual DeviceBatch Next() = 0;

  // Says that all work on the current micro-batch is enqueued, so that the source can bring the next one to the device.
  // The call is optional, and may wait for the source.
  virtual void Prefetch() = 0;
};

class PinnedBatches final : public MicroBatches {
 public:
  explicit PinnedBatches(std::vector<DeviceBatch> batches) : batches_(std::move(batches)) {}

  DeviceBatch Next() override { return batches_[next_++ % batches_.size()]; }
  void Prefetch() override {}

 private:
  std::vector<DeviceBatch> batches_;
  size_t next_ = 0;
};

class KeptBatch final : public MicroBatches {
 public:
  // Keeps a reference to `rest`, from which `kept` was taken last.
  KeptBatch(DeviceBatch kept, MicroBatches& rest) : kept_(std::move(kept)), rest_(rest) {}

  DeviceBatch Next() override { return kept_ ? *std::exchange(kept_, std::nullopt) : rest_.Next(); }
  void Prefetch() override { rest_.Prefetch(); }

 private:
  std::optional<DeviceBatch> kept_;
  MicroBatches& rest_;
};

}  // namespace lockstep
