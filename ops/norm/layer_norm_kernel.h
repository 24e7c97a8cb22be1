// Declares the functions that launch the kernels of layer_norm.h. All pointers point to device memory. If `centers` is
// true, a kernel computes LayerNorm. If `centers` is false, the kernel computes RMSNorm, which has no bias, and sets
// the means in RowStatistics to 0.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"
#include "ops/common/rows_shape.h"
#include "ops/common/sums_to.h"

namespace lockstep::ops {

struct alignas(8) RowStatistics {
  float mean;
  float rstd;  // 1 / sqrt(mean of (x - mean)^2 + epsilon)
};

// The types of the activations, [rows, width]. Either both types are the same, or `wide` is float32 and `narrow` is a
// 16-bit type.
struct NormTypes {
  FloatType wide;    // the type of x, sum, d_sum, dx, y_wide and dy_wide
  FloatType narrow;  // the type of branch, y, dy and d_branch
};

// The tensors of forward. weight, bias and branch_bias are [width]; x, branch, sum, y and y_wide are [rows, width].
struct LayerNormForward {
  const void* x;
  const void* branch;        // nullptr if nothing is added to x
  const float* branch_bias;  // nullptr if there is no branch, or no bias in the branch
  const float* weight;
  const float* bias;  // only LayerNorm reads it
  float epsilon;
  void* sum;  // x + branch + branch_bias, if there is a branch
  void* y;
  void* y_wide;               // y before it is rounded to `narrow`, or nullptr
  RowStatistics* statistics;  // [rows]
};

struct LayerNormBackward {
  const void* x;        // the input that forward normalised
  const void* dy;       // nullptr if there is only dy_wide
  const void* dy_wide;  // a gradient that is added to dy, or nullptr
  const void* d_sum;    // a gradient that is added to dx, or nullptr
  const float* weight;
  const RowStatistics* statistics;
  void* dx;
  void* d_branch;  // dx rounded to `narrow`, or nullptr
  // Scratch memory: [LayerNormPartialRows(shape), kParts, width]; nullptr if no sums are wanted.
  float* partials;
  // The gradients of weight, bias and branch_bias, each [width].
  SumsTo d_weight;
  SumsTo d_bias;
  SumsTo d_branch_bias;

  static constexpr int kParts = 3;
};

// The maximum number of thread blocks per multiprocessor that share the sums over rows.
constexpr int kLayerNormBlocksPerMultiprocessor = 4;
inline int64_t LayerNormPartialRows(const RowsShape& shape) {
  const int64_t blocks = int64_t{shape.multiprocessors} * kLayerNormBlocksPerMultiprocessor;
  return shape.rows < blocks ? shape.rows : blocks;
}

// Enqueues the kernel that computes y, sum and statistics.
void LaunchLayerNorm(const LayerNormForward& tensors, bool centers, const NormTypes& types,
                     const RowsShape& shape, cudaStream_t stream);

// Enqueues the kernels of backward. With x^ = (x - mean) rstd, g = dy weight, and means over a row, the kernels compute
//   dx = d_sum + rstd (g - mean of g - x^ mean of g x^)
//   d_weight, d_bias, d_branch_bias = the sums over rows of dy x^, dy and dx
// where rstd is RowStatistics::rstd. For RMSNorm the formula of dx has no term 'mean of g'.
void LaunchLayerNormBackward(const LayerNormBackward& tensors, bool centers, const NormTypes& types,
                             const RowsShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
