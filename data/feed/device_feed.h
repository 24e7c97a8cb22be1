// DeviceFeed: brings a loader's micro-batches to the device that trains.
//
// Promise: Next() returns the loader's micro-batches in order. On a GPU the feed copies a micro-batch on a separate
// stream while the GPU computes with the previous micro-batch. The host waits only for the loader.
//
// Invariants:
//   1. On the CPU the model reads a micro-batch from the loader's slot, and nothing is copied.
//   2. On a GPU there are two slots in device memory, allocated in the constructor. Next() takes back the slot of an
//      earlier micro-batch. The copy into this slot waits, on the device, for the work that was queued by then, and the
//      stream of that work waits, on the device, for the copy.
//   3. The feed gives a loader slot back together with the event of its copy. A loader thread waits for this event
//      before it writes to the slot again.
//
// what can fail -> what the caller sees -> the test that shows it
//   the loader throws -> Next() or Prefetch() throws the same -> data/feed/loader_test.cc
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>

#include "data/feed/loader.h"

namespace lockstep {

struct DeviceBatch {
  MicroBatch origin;
  at::Tensor input;   // [count, shape...] of the data set's dtype
  at::Tensor target;  // [count, spec.target_shape()...]
  at::Tensor draws;   // float32 [count, kAugmentDraws]; undefined where the loader draws nothing
};

class DeviceFeed {
 public:
  // Keeps a reference to `loader`, whose slots are pinned if `device` is a GPU. `max_micro_batch`
  // and `spec` are those of its sampler and data set.
  DeviceFeed(Loader& loader, const SampleSpec& spec, int64_t max_micro_batch, at::Device device);
  ~DeviceFeed();
  DeviceFeed(const DeviceFeed&) = delete;
  DeviceFeed& operator=(const DeviceFeed&) = delete;

  // The next micro-batch, for work on the current stream. It holds until the next call.
  DeviceBatch Next();

  // Starts the copy of the batch after the one that is in use: to be called once the latter's work
  // is queued, since it waits for the loader. Optional.
  void Prefetch();

  // Seconds that training stood still because a batch was not there: on a GPU between the end of what
  // was queued before its Prefetch() and the end of its copy, on the CPU in the loader. Of the latest
  // batches not yet.
  double waited_s();

  // On a GPU: how many batches' copies were queued so far, but for the first; and the part of waited_s() that is
  // theirs, if `batches` is one of the newest kRemembered of these numbers.
  int64_t queued() const;
  double waited_s(int64_t batches);
  static constexpr int64_t kRemembered = 4096;

 private:
  struct Gpu;  // streams, slots and events; none on the CPU

  void CountGaps();
  double& WaitedUntil(int64_t batches);

  Loader& loader_;
  bool lent_ = false;  // CPU: a loader slot is in use
  std::unique_ptr<Gpu> gpu_;
};

}  // namespace lockstep
