// Reads what LibTorch's allocator knows of a GPU's memory, and of an allocation that failed.
//
// what can fail -> what the caller sees -> the test that shows it
//   an allocation -> AllocationFailures::Take() tells of it -> tests/gpu/gpu_memory_test.py,
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
  int64_t reserved_bytes = 0;  // what the allocator holds of the GPU's memory
  int64_t pool_bytes = 0;      // what CUDA graphs' pools hold of reserved_bytes
};

// Whether LibTorch's allocator for GPUs is its own, which tells of its blocks, and not CUDA's
// (PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync), which tells nothing. The functions and classes below need the
// former.
bool TellsBlocks();

// The most memory that tensors took on a GPU at a time, and what tensors could have had besides, of its memory.
struct DevicePeak {
  int64_t peak_bytes = 0;
  int64_t left_bytes = 0;
  int64_t device_bytes = 0;
};

// Returns the state of the memory of a GPU. It takes the allocator's lock and walks through its blocks, which takes
// milliseconds at most.
DeviceMemory ReadDeviceMemory(at::Device device);

// Returns the bytes that the allocator has given on a GPU. It takes microseconds.
int64_t AllocatedBytes(at::Device device);

// Returns the memory of a GPU, and what tensors can still get of it: what nobody holds, and what the allocator holds
// and has not given.
int64_t TotalDeviceBytes(at::Device device);
int64_t FreeDeviceBytes(at::Device device);

// Remembers the last allocation that failed on a GPU, on any thread. LibTorch has no way to leave an observer, so an
// observer stays until the process ends, but it does nothing without this object.
class AllocationFailures {
 public:
  // `on_failure` is called on the thread whose allocation failed, before the allocation throws, by one thread at a
  // time. Exceptions from it are swallowed.
  AllocationFailures(at::Device device, std::function<void()> on_failure);
  ~AllocationFailures();
  AllocationFailures(const AllocationFailures&) = delete;
  AllocationFailures& operator=(const AllocationFailures&) = delete;

  // Returns the last failure since the last call; nothing if there was none.
  std::optional<AllocationFailure> Take();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep
