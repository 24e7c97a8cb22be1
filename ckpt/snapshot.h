// StateSnapshot: a copy of tensors as they were at one moment. A thread writes the copy while training goes on.
//
// Promise: Take() enqueues the copies behind the work on the current stream and returns. The host does not wait, and
// the device waits only for the copies. The copies lie on the device. If the copies would leave less than a tenth of
// the device's memory free, they lie in pinned memory of the host instead. The second and later calls of Take() with
// tensors of the same shapes and dtypes allocate no memory, with one exception: a tensor that is not contiguous
// needs a temporary copy when it is copied to pinned memory.
//
// Append() copies a tensor's bytes to the host in pieces, on a separate stream. While a piece is being written, the
// next piece is being copied.
//
// what can fail -> what the caller sees -> the test that shows it
//   no memory for the copies, neither on the device nor on the host -> c10::OutOfMemoryError or std::bad_alloc from
//     Take() -> tests/gpu/snapshot_test.cc, for the device's memory
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "base/files/atomic_file.h"
#include "base/tensor/named_tensor.h"

namespace lockstep {

class StateSnapshot {
 public:
  explicit StateSnapshot(at::Device device);
  ~StateSnapshot();
  StateSnapshot(const StateSnapshot&) = delete;
  StateSnapshot& operator=(const StateSnapshot&) = delete;

  // Takes a snapshot, and overwrites the last snapshot. Nobody may be reading the tensors of the last snapshot.
  void Take(const std::vector<NamedTensor>& tensors);

  // holds_device_memory() returns whether the copies lie on the device. LeaveDeviceMemory() frees them, and later
  // copies lie on the host; it must be called only while nobody reads the copies.
  bool holds_device_memory() const;
  void LeaveDeviceMemory();

  // Returns the copies, which are contiguous, in the order of the tensors that were passed to Take(). Only Append() may
  // read them.
  const std::vector<NamedTensor>& tensors() const { return copies_; }

  // Waits for the copies, and returns how many seconds they took on the device, or on the host if `device` is the CPU.
  double seconds() const;

  // Appends the bytes of a copy. Any thread may call it, but only one at a time.
  void Append(const at::Tensor& tensor, const AppendBytes& append);

 private:
  struct Gpu;  // the stream and the pinned buffers; null on the CPU

  at::Tensor MemoryLike(const at::Tensor& tensor);

  at::Device device_;
  std::vector<NamedTensor> copies_;
  double host_s_ = 0;
  std::unique_ptr<Gpu> gpu_;
};

}  // namespace lockstep
