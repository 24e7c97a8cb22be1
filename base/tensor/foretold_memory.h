// ForetoldMemory: simulates the memory of a foretold GPU (base/tensor/foretold_gpu.h).
//
// Promise: while a ForetoldMemory exists, tensors on the device META get addresses from a CachingAllocator, but no
// memory. Each allocation is reported to LibTorch's profiler, as LibTorch reports the allocations on a GPU. If the
// simulated device has too little memory, an allocation throws c10::OutOfMemoryError, as on a GPU.
//
// Only one ForetoldMemory may exist at a time. Tensors may outlive it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <functional>

#include "base/tensor/caching_allocator.h"

namespace lockstep {

class ForetoldMemory {
 public:
  explicit ForetoldMemory(int64_t capacity_bytes);
  ~ForetoldMemory();
  ForetoldMemory(const ForetoldMemory&) = delete;
  ForetoldMemory& operator=(const ForetoldMemory&) = delete;

  const CachingAllocator& allocator() const;

  // EmptyCache() releases the cached segments of the ForetoldMemory that exists. AsGraph() calls `act`; the allocations
  // that `act` makes lie in the segments of a CUDA graph. Without a ForetoldMemory, EmptyCache() does nothing and
  // AsGraph() only calls `act`.
  static void EmptyCache();
  static void AsGraph(const std::function<void()>& act);

 private:
  c10::Allocator* before_;
};

// Moves `tensor` from any device to the foretold GPU. Its sizes and strides stay the same. The change is made in place,
// so all references to this tensor see it.
void MoveToForetold(const at::Tensor& tensor);

}  // namespace lockstep
