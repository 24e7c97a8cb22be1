// Reads from LibTorch's CUDA allocator how a GPU's memory is used, and why an allocation failed.
//
// what can fail -> what the caller sees -> the test that shows it
//   an allocation fails -> AllocationFailures::Take() returns the failure -> tests/gpu/gpu_memory_test.py,
//     test_fragmentation_is_named
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "observe/memory/allocation_failure.h"

namespace lockstep {

struct DeviceMemory {
  int64_t reserved_bytes = 0;  // the GPU memory that the allocator has reserved
  int64_t pool_bytes = 0;      // the part of reserved_bytes in memory pools of CUDA graphs
};

// Returns whether LibTorch uses its native CUDA caching allocator, which lists its blocks. CUDA's allocator
// (PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync) cannot list its blocks. ReadDeviceMemory() and AllocationFailures
// need the native allocator.
bool TellsBlocks();

// The peak of the memory that tensors took on a GPU (peak_bytes), how much more memory tensors could have taken at the
// peak (left_bytes), and the size of the GPU's memory (device_bytes).
struct DevicePeak {
  int64_t peak_bytes = 0;
  int64_t left_bytes = 0;
  int64_t device_bytes = 0;
};

// Returns the state of a GPU's memory. The call locks the allocator and walks through its blocks, which takes
// milliseconds at most.
DeviceMemory ReadDeviceMemory(at::Device device);

// Returns the bytes of a GPU that are allocated to tensors. The call takes microseconds.
int64_t AllocatedBytes(at::Device device);

// TotalDeviceBytes() returns the bytes of a GPU's memory. FreeDeviceBytes() returns the bytes that tensors can still
// get: the bytes that the allocator has reserved but not allocated, and the bytes that it can still reserve. The latter
// are limited by what other processes have reserved, and by per_process_memory_fraction.
int64_t TotalDeviceBytes(at::Device device);
int64_t FreeDeviceBytes(at::Device device);

// Remembers the last allocation that failed on a GPU, on any thread. LibTorch cannot remove an out-of-memory observer,
// so the observer stays until the process ends, but the observer does nothing after this object is destroyed.
class AllocationFailures {
 public:
  // Begins to observe `device`. Calls `on_failure` on the thread whose allocation failed, before the allocation throws.
  // Only one thread calls `on_failure` at a time. Exceptions that `on_failure` throws are ignored.
  AllocationFailures(at::Device device, std::function<void()> on_failure);
  ~AllocationFailures();
  AllocationFailures(const AllocationFailures&) = delete;
  AllocationFailures& operator=(const AllocationFailures&) = delete;

  // Returns the newest failure since the last call of Take(), or nothing if no allocation has failed since then.
  std::optional<AllocationFailure> Take();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep
