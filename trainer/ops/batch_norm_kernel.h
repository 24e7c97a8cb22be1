// The kernels of batch_norm.h. All pointers are the device's; [rows, channels] means that a row's channels
// lie together: [N, C], or [N, C, H, W] channels last.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/float_type.h"

namespace lockstep::ops {

struct BatchNormShape {
  int64_t rows;
  int64_t channels;     // a multiple of ChannelsOfPack
  int multiprocessors;  // of the device
};

// Rows of the scratch for sums over rows, [rows, 2, channels] of float32.
int64_t BatchNormPartialRows(FloatType type, const BatchNormShape& shape);

struct BatchNormStatistics {
  const void* x;
  float epsilon;
  float momentum;
  float* partials;      // scratch
  float* statistics;    // [2, channels]: mean, 1 / sqrt(variance + epsilon)
  float* running_mean;  // [channels], or nullptr
  float* running_var;   // as running_mean
};

struct BatchNormForward {
  const void* x;
  const void* residual;  // or nullptr
  const float* weight;   // [channels]
  const float* bias;     // [channels]
  const float* statistics;
  bool relu;
  void* y;
  uint8_t*
      mask;  // [rows, channels / ChannelsOfPack]: bit i says whether ReLU let channel i pass; or nullptr
};

struct BatchNormBackward {
  const void* x;
  const void* dy;
  const float* weight;
  const float* bias;
  const float* statistics;
  bool relu;
  const uint8_t* mask;  // where a residual was added
  float* partials;      // scratch
  float* d_weights;     // [2, channels]: of weight, of bias
  void* dx;
  void* d_residual;  // or nullptr
};

// Enqueues statistics, of the biased variance, and the running ones, of the unbiased variance.
void LaunchBatchNormStatistics(const BatchNormStatistics& tensors, FloatType type,
                               const BatchNormShape& shape, cudaStream_t stream);

// Enqueues y and mask.
void LaunchBatchNorm(const BatchNormForward& tensors, FloatType type, const BatchNormShape& shape,
                     cudaStream_t stream);

// Enqueues, with x^ = (x - mean) rstd and dz = dy where ReLU let it pass, else 0,
//   d_weights = sums over rows of dz x^ and of dz;
//   dx = weight rstd (dz - mean of dz - x^ mean of dz x^), the means being a channel's;
//   d_residual = dz.
void LaunchBatchNormBackward(const BatchNormBackward& tensors, FloatType type,
                             const BatchNormShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
