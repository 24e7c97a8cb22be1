// Declares the function that launches the kernel of strided_sum.h. All pointers point to device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"

namespace lockstep::ops {

// Tensors of 16-bit values that are read and written in packs of eight neighbours. The dimensions go from the outermost to
// the innermost, whose size counts packs. Strides are in packs, and those of the innermost dimension are 1.
struct StridedPacks {
  static constexpr int kMostDims = 5;

  int dims = 0;
  int sizes[kMostDims];
  int64_t a_strides[kMostDims], b_strides[kMostDims], to_strides[kMostDims];
  int packs = 0;  // of all elements
};

// Enqueues the kernel that computes to = a + b, or to = a if `b` is null. `to` may be `a`.
void LaunchStridedSum(const void* a, const void* b, void* to, FloatType type,
                      const StridedPacks& shape, cudaStream_t stream);

}  // namespace lockstep::ops
