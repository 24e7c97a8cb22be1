// Declares the functions that launch the kernels of norm_pool.h. All pointers point to device memory. Images are
// [count, height, width, channels].
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"

namespace lockstep::ops {

struct NormPoolShape {
  int64_t count;
  int channels;  // a multiple of ChannelsOfPack
  int height;
  int width;
  int pooled_height;  // half of height, rounded up
  int pooled_width;
  int multiprocessors;  // the number of multiprocessors of the device
};

// Returns the number of rows of the scratch memory for the sums over rows, float32 [rows, 2, channels].
int64_t NormPoolPartialRows(FloatType type, const NormPoolShape& shape);

struct NormPoolForward {
  const void* x;
  const float* weight;  // [channels]
  const float* bias;    // [channels]
  // [2 channels + 1]: mean, 1 / sqrt(variance + epsilon), the number of pixels.
  const float* statistics;
  void* y;  // [count, pooled_height, pooled_width, channels]; `codes` has the same shape
  // 8 - (the position of the window's greatest value, 0 to 8, counted row by row); 9 if ReLU passes no value of the
  // window.
  uint8_t* codes;
};

struct NormPoolBackward {
  const void* x;
  const void* dy;
  const uint8_t* codes;
  const float* weight;
  const float* statistics;
  float* partials;   // scratch memory
  float* d_weights;  // [2, channels]: the sums of dz x^ and of dz
  void* dx;
};

// Enqueues the kernel that computes y and codes.
void LaunchNormPool(const NormPoolForward& tensors, FloatType type, const NormPoolShape& shape,
                    cudaStream_t stream);

// Enqueues the kernel that computes d_weights = the sums over pixels of dz x^ and of dz. x^ is (x - mean) rstd. dz is
// the sum of dy over the windows in which x is the greatest value, if ReLU passed this value.
void LaunchNormPoolSums(const NormPoolBackward& tensors, FloatType type, const NormPoolShape& shape,
                        cudaStream_t stream);

// Enqueues the kernel that computes
//   dx = weight rstd (dz - mean of dz - x^ mean of dz x^), where the means are those of a channel.
// d_weights must hold the sums over all pixels of the batch.
void LaunchNormPoolBackward(const NormPoolBackward& tensors, FloatType type,
                            const NormPoolShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
