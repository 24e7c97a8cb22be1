// Declares the functions that launch the kernels of norm_pool.h. All pointers point to device memory. Images are
// [count, height, width, channels].
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"

namespace lockstep::ops {

struct NormPoolShape {
  int64_t count;
  int channels;  // a multiple of ChannelsOfPack(type)
  int height;
  int width;
  int pooled_height;  // height / 2, rounded up
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
  // The code of each window: 9 if ReLU lets no value of the window pass, otherwise 8 minus the position of the greatest
  // value. The positions in a window are counted row by row from 0 to 8.
  uint8_t* codes;
};

struct NormPoolBackward {
  const void* x;
  const void* dy;
  const uint8_t* codes;
  const float* weight;
  const float* statistics;
  float* partials;   // scratch memory: [NormPoolPartialRows(), 2, channels]
  float* d_weights;  // [2, channels]: the sums of dz x^ and of dz
  void* dx;
};

// Enqueues the kernel that computes y and codes.
void LaunchNormPool(const NormPoolForward& tensors, FloatType type, const NormPoolShape& shape,
                    cudaStream_t stream);

// Enqueues the kernels that compute d_weights = the sums over pixels of dz x^ and of dz. x^ is (x - mean) rstd, where
// rstd is 1 / sqrt(variance + epsilon). dz is the sum of dy over the windows in which x is the greatest value, or 0 if
// ReLU did not let x pass.
void LaunchNormPoolSums(const NormPoolBackward& tensors, FloatType type, const NormPoolShape& shape,
                        cudaStream_t stream);

// Enqueues the kernel that computes
//   dx = weight rstd (dz - mean of dz - x^ mean of dz x^), where the means are those of a channel.
// d_weights must hold the sums over all pixels of the batch.
void LaunchNormPoolBackward(const NormPoolBackward& tensors, FloatType type,
                            const NormPoolShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
