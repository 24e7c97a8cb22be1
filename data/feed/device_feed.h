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
#include <vector>

#include "data/feed/loader.h"
#include "data/feed/micro_batches.h"

namespace lockstep {

class DeviceFeed final : public MicroBatches {
 public:
  static constexpr int kSlots = 2;  // batches that a GPU holds at a time

  // Keeps a reference to `loader`, whose slots must be pinned if `device` is a GPU. `max_micro_batch` is that of the
  // loader's sampler, and `spec` that of its data set.
  DeviceFeed(Loader& loader, const SampleSpec& spec, int64_t max_micro_batch, at::Device device);
  ~DeviceFeed() override;

  DeviceBatch Next() override;

  // Starts the copy of the batch after the current one, and waits for the loader.
  void Prefetch() override;

  // The seconds for which training stood still because a batch was not ready. On a GPU they are the time between the
  // end of the work that was enqueued before Prefetch() and the end of the batch's copy; on the CPU they are the wait
  // for the loader. The latest batches are not included yet.
  double waited_s();

  // Returns the slots' tensors in GPU memory; on the CPU there are none.
  std::vector<at::Tensor> DeviceMemories() const;

  // For a GPU. queued() returns how many copies of batches were queued so far, not counting the first. waited_s(n)
  // returns the part of waited_s() that belongs to the first n of them; n must be one of the newest kRemembered values
  // of queued().
  int64_t queued() const;
  double waited_s(int64_t batches);
  static constexpr int64_t kRemembered = 4096;

 private:
  struct Gpu;  // streams, slots and events; none on the CPU

  HostBatch NextOfLoader();
  void CountGaps();
  double& WaitedUntil(int64_t batches);

  Loader& loader_;
  bool lent_ = false;  // on the CPU: whether a slot of the loader is in use
  std::unique_ptr<Gpu> gpu_;
};

}  // namespace lockstep
