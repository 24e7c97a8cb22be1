// Declares the functions that launch the kernels of max_pool.h. All pointers point to device memory. Images are [count,
// height, width, channels].
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"

namespace lockstep::ops {

struct MaxPoolShape {
  int64_t count;
  int channels;  // a multiple of ChannelsOfPack(type)
  int height;
  int width;
  int pooled_height;
  int pooled_width;
  int window;  // 2 or 3
  int stride;
  int padding;
};

// Enqueues the kernel that computes y and positions, both [count, pooled_height, pooled_width, channels]. A position is
// the index of the greatest value in its window, counted row by row from 0.
void LaunchMaxPool(const void* x, void* y, uint8_t* positions, FloatType type,
                   const MaxPoolShape& shape, cudaStream_t stream);

// A gradient that is added to dx. The gradient has the size of dx. Adjacent pixels of the gradient lie `pixel_stride`
// values apart, which is a multiple of ChannelsOfPack().
struct AddedGradient {
  const void* images = nullptr;  // nullptr if nothing is added
  int64_t pixel_stride = 0;
};

// Enqueues the kernel that computes dx = the sum of dy over the windows in which x is the greatest value, + added.
void LaunchMaxPoolBackward(const void* dy, const uint8_t* positions, const AddedGradient& added,
                           void* dx, FloatType type, const MaxPoolShape& shape,
                           cudaStream_t stream);

}  // namespace lockstep::ops
