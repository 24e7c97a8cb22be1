// Declares the functions that launch the kernels of depthwise_convolution.h. All pointers point to device memory.
// Images are [count, height, width, channels], in 16 bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"
#include "ops/common/sums_to.h"

namespace lockstep::ops {

struct DepthwiseShape {
  int count;
  int channels;  // a multiple of 8
  int height, width;
  int out_height, out_width;
  int size;     // 3, 5 or 7
  int stride;   // 1 or 2
  int padding;  // 0 to size - 1
  int multiprocessors;
};

// Enqueues the kernel that computes y = x * weight + bias, where * is the convolution. `weight` is [channels, size,
// size], `bias` is [channels] or nullptr.
void LaunchDepthwise(const void* x, const float* weight, const float* bias, void* y, FloatType type,
                     const DepthwiseShape& shape, cudaStream_t stream);

// Enqueues the kernel that computes dx, the gradient of x.
void LaunchDepthwiseInputGradient(const void* dy, const float* weight, void* dx, FloatType type,
                                  const DepthwiseShape& shape, cudaStream_t stream);

// Returns how many float32 values of scratch memory the gradient of the weight needs.
int64_t DepthwisePartials(const DepthwiseShape& shape);

// Enqueues the kernels that compute the gradient of the weight, [channels, size, size].
void LaunchDepthwiseWeightGradient(const void* x, const void* dy, float* partials,
                                   const SumsTo& d_weight, FloatType type,
                                   const DepthwiseShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
