// The kernels of norm_pool.h. All pointers point to device memory. Images are [count, height, width, channels].
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/common/float_type.h"

namespace lockstep::ops {

struct NormPoolShape {
  int64_t count;
  int channels;  // a multiple of ChannelsOfPack
  int height;
  int width;
  int pooled_height;  // half of height, rounded up
  int pooled_width;
  int multiprocessors;  // of the device
};

// Rows of the scratch for sums over rows, [rows, 2, channels] of float32.
int64_t NormPoolPartialRows(FloatType type, const NormPoolShape& shape);

struct NormPoolForward {
  const void* x;
  const float* weight;      // [channels]
  const float* bias;        // [channels]
  const float* statistics;  // [2 channels + 1]: mean, 1 / sqrt(variance + epsilon), pixels
  void* y;                  // [count, pooled_height, pooled_width, channels], as are the codes:
  uint8_t* codes;           // 8 - the winner's position, row by row; 9: ReLU lets nothing pass
};

struct NormPoolBackward {
  const void* x;
  const void* dy;
  const uint8_t* codes;
  const float* weight;
  const float* statistics;
  float* partials;   // scratch
  float* d_weights;  // [2, channels]: sums of dz x^, of dz
  void* dx;
};

// Enqueues y and codes.
void LaunchNormPool(const NormPoolForward& tensors, FloatType type, const NormPoolShape& shape,
                    cudaStream_t stream);

// With x^ = (x - mean) rstd and dz = sum of dy over the windows that x won and that ReLU let pass,
// enqueues
//   d_weights = sums over pixels of dz x^ and of dz.
void LaunchNormPoolSums(const NormPoolBackward& tensors, FloatType type, const NormPoolShape& shape,
                        cudaStream_t stream);

// Enqueues, d_weights being the sums over all pixels of the batch,
//   dx = weight rstd (dz - mean of dz - x^ mean of dz x^), the means being a channel's.
void LaunchNormPoolBackward(const NormPoolBackward& tensors, FloatType type,
                            const NormPoolShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
