// DeviceFeed: brings a loader's micro-batches to the device that trains.
//
// Promise: Next() returns the loader's micro-batches in order. On a GPU the feed copies a micro-batch on a separate
// stream while the GPU computes with the previous micro-batch. The host waits only for the loader.
//
// Invariants:
//   1. On the CPU the model reads a micro-batch from the loader's slot, and nothing is copied.
//   2. On a GPU there are two slots in device memory, allocated in the constructor. Next() ends the use of the current
//      micro-batch, and records an event behind the work that is queued in the current stream. The next copy into the
//      slot of this micro-batch waits, on the device, for this event. The current stream waits, on the device, for the
//      copy of the micro-batch that Next() returns.
//   3. When the copy from a slot of the loader is queued, the feed releases the slot, and passes the loader a function
//      that waits for the end of the copy. A loader thread calls this function before it writes to the slot again.
//
// what can fail -> what the caller sees -> the test that shows it
//   the loader throws -> Next() or Prefetch() throws the same exception -> data/feed/loader_test.cc
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "data/feed/loader.h"
#include "data/feed/micro_batches.h"

namespace lockstep {

class DeviceFeed final : public MicroBatches {
 public:
  static constexpr int kSlots = 2;  // the number of micro-batches that GPU memory holds at a time

  // Keeps a reference to `loader`, whose slots must be pinned if `device` is a GPU. `max_micro_batch` is
  // max_micro_batch() of the loader's sampler, and `spec` is spec() of the loader's data set.
  DeviceFeed(Loader& loader, const SampleSpec& spec, int64_t max_micro_batch, at::Device device);
  ~DeviceFeed() override;

  DeviceBatch Next() override;

  // Takes the micro-batch after the current one from the loader, and starts the copy of this micro-batch to the GPU.
  // May have to wait until the loader has read the micro-batch. Does nothing on the CPU, or if that copy was already
  // started.
  void Prefetch() override;

  // Returns the seconds for which training stood still because a micro-batch was not ready. On a GPU this is the time
  // between the end of the work that was queued before Prefetch() and the end of the micro-batch's copy; on the CPU it
  // is the wait for the loader. On a GPU the first micro-batch, and those whose copy the GPU has not finished, are not
  // included.
  double waited_s();

  // Returns the tensors of the slots in GPU memory; on the CPU, returns an empty list.
  std::vector<at::Tensor> DeviceMemories() const;

  // On a GPU, queued() returns how many copies of micro-batches were queued so far, not counting the first copy, and
  // waited_s(n) returns the part of waited_s() that belongs to the first n of these copies; n must be one of the latest
  // kRemembered values of queued(). On the CPU, queued() returns 0, and waited_s(n) returns the same as waited_s().
  int64_t queued() const;
  double waited_s(int64_t batches);
  static constexpr int64_t kRemembered = 4096;

 private:
  struct Gpu;  // the stream, the slots and the events; gpu_ is null on the CPU

  HostBatch NextOfLoader();
  void CountGaps();
  double& WaitedUntil(int64_t batches);

  Loader& loader_;
  bool lent_ = false;  // on the CPU: whether a slot of the loader is not yet released
  std::unique_ptr<Gpu> gpu_;
};

}  // namespace lockstep
