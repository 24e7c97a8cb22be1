// ForetoldMemory: the memory of a foretold GPU (base/tensor/foretold_gpu.h).
//
// Promise: while it lives, tensors on the device META take addresses, but no memory, of a CachingAllocator, and LibTorch
// reports each allocation as it reports a GPU's. If the device has too little memory, an allocation throws
// c10::OutOfMemoryError, as on a GPU.
//
// Only one foretold memory exists at a time. Tensors may outlive it.
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

  // These do to the present foretold memory what happens on a GPU: one gives back what is cached, the other calls
  // `act`, whose allocations lie in a CUDA graph's segments.
  static void EmptyCache();
  static void AsGraph(const std::function<void()>& act);

 private:
  c10::Allocator* before_;
};

// Gives `tensor`, of whatever device, memory of the foretold GPU. Its sizes and strides stay; all that have it see it.
void MoveToForetold(const at::Tensor& tensor);

}  // namespace lockstep
