// MicroBatches: the interface of a source that gives a step its micro-batches on the device.
//
//   DeviceFeed (data/feed/device_feed.h)   the samples of a data set, in the order of training
//   PinnedBatches                          the same micro-batches again and again, for a measurement that repeats one
//                                          step, or for a CUDA graph, which always reads the same input buffers
//   KeptBatch                              first one micro-batch that was already taken from another source, and then
//                                          the further micro-batches of that source
//
// For a simulated GPU (base/tensor/foretold_gpu.h) the source is a ForetoldFeed (trainer/run/foretell.cc).
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
  at::Tensor draws;   // float32 [count, kAugmentDraws]; undefined if nothing is drawn
};

class MicroBatches {
 public:
  MicroBatches() = default;
  virtual ~MicroBatches() = default;
  MicroBatches(const MicroBatches&) = delete;
  MicroBatches& operator=(const MicroBatches&) = delete;

  // Returns the next micro-batch, for work on the current stream. The micro-batch is valid until the next call of
  // Next().
  virtual DeviceBatch Next() = 0;

  // Tells the source that all work on the current micro-batch is queued, so that the source can copy the next
  // micro-batch to the device. The call is optional. It may wait until the next micro-batch is read.
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
  // Keeps a reference to `rest`. `kept` must be the last micro-batch that was taken from `rest`.
  KeptBatch(DeviceBatch kept, MicroBatches& rest) : kept_(std::move(kept)), rest_(rest) {}

  DeviceBatch Next() override { return kept_ ? *std::exchange(kept_, std::nullopt) : rest_.Next(); }
  void Prefetch() override { rest_.Prefetch(); }

 private:
  std::optional<DeviceBatch> kept_;
  MicroBatches& rest_;
};

}  // namespace lockstep
