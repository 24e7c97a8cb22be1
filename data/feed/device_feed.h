// DeviceFeed: a loader's micro-batches on the device that trains.
//
// Promise: Next() returns the loader's micro-batches in order. On a GPU the feed copies each micro-batch on its own
// stream while the GPU computes on the one before. The host waits only for the loader.
//
// Invariants:
//   1. On the CPU a batch is the loader's slot itself; nothing is copied.
//   2. On a GPU there are two device slots, allocated at construction. On the device, the copy into a slot waits for
//      the work that was queued when Next() took back the slot's last batch. The stream of that work waits, on the
//      device, for the copy.
//   3. A loader slot is returned together with a wait for its copy. A loader thread waits before it writes to the slot
//      again.
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

 private:
  struct Gpu;  // streams, slots and events; none on the CPU

  void CountGaps();

  Loader& loader_;
  bool lent_ = false;  // CPU: a loader slot is in use
  std::unique_ptr<Gpu> gpu_;
};

}  // namespace lockstep
