// StateSnapshot: a copy of tensors as they were at one moment. A thread writes the copy while training goes on.
//
// Promise: Take() queues copies behind the work on the current stream and returns. The host does not wait, and the
// device waits only for the copies. The copies lie on the device. If the copies would leave less than a tenth of the
// device's memory free, they lie in pinned memory of the host instead. From the second Take() of the same tensors on
// nothing is allocated. There is one exception: tensors that are not contiguous, if the copies lie in pinned memory.
//
// Append() brings a tensor's bytes to the host in pieces, on a separate stream. Two pieces travel at the same time.
//
// what can fail -> what the caller sees -> the test that shows it
//   no memory for the copies, on the device nor on the host -> c10::OutOfMemoryError or std::bad_alloc from
//     Take() -> tests/gpu/snapshot_test.cc, for the device's
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

  // Takes a snapshot. Nobody may be reading the tensors of the last snapshot.
  void Take(const std::vector<NamedTensor>& tensors);

  // holds_device_memory() returns whether the copies lie on the device. LeaveDeviceMemory() moves them to the host for
  // good, if the device's memory is needed. Nobody may be reading them.
  bool holds_device_memory() const;
  void LeaveDeviceMemory();

  // The copies, contiguous, in the order of the tensors that Take() got. Only Append() may read them.
  const std::vector<NamedTensor>& tensors() const { return copies_; }

  // Returns how long the device, or on the CPU the host, stood still for the copies. Waits for the copies.
  double seconds() const;

  // Appends the bytes of a copy. Any thread may call it, but only one at a time.
  void Append(const at::Tensor& tensor, const AppendBytes& append);

 private:
  struct Gpu;  // streams and pinned pieces; none on the CPU

  at::Tensor MemoryLike(const at::Tensor& tensor);

  at::Device device_;
  std::vector<NamedTensor> copies_;
  double host_s_ = 0;
  std::unique_ptr<Gpu> gpu_;
};

}  // namespace lockstep
