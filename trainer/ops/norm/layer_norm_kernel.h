// The kernels of layer_norm.h. All pointers point to device memory. With `centers` a kernel computes LayerNorm. Without
// it the kernel computes RMSNorm, which has no bias and takes the means as 0.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/common/float_type.h"
#include "trainer/ops/common/rows_shape.h"
#include "trainer/ops/common/sums_to.h"

namespace lockstep::ops {

struct alignas(8) RowStatistics {
  float mean;
  float rstd;  // 1 / sqrt(mean of (x - mean)^2 + epsilon)
};

// [rows, width] of the type given with them, [width] of the weights.
struct LayerNormForward {
  const void* x;
  const void* branch;        // or nullptr
  const float* branch_bias;  // where there is a branch; or nullptr
  const float* weight;
  const float* bias;  // LayerNorm's
  float epsilon;
  void* sum;  // x + branch + branch_bias, where there is a branch
  void* y;
  RowStatistics* statistics;  // [rows]
};

struct LayerNormBackward {
  const void* x;  // what was normalised
  const void* dy;
  const void* d_sum;  // what is added to dx, or nullptr
  const float* weight;
  const RowStatistics* statistics;
  void* dx;
  float* partials;  // [LayerNormPartialRows(shape), kParts, width] of scratch, or nullptr: no sums
  // [width] each.
  SumsTo d_weight;
  SumsTo d_bias;
  SumsTo d_branch_bias;

  static constexpr int kParts = 3;
};

// The most blocks that share the sums over rows.
constexpr int kLayerNormBlocksPerMultiprocessor = 4;
inline int64_t LayerNormPartialRows(const RowsShape& shape) {
  const int64_t blocks = int64_t{shape.multiprocessors} * kLayerNormBlocksPerMultiprocessor;
  return shape.rows < blocks ? shape.rows : blocks;
}

// Enqueues y, sum and statistics.
void LaunchLayerNorm(const LayerNormForward& tensors, bool centers, FloatType type,
                     const RowsShape& shape, cudaStream_t stream);

// Enqueues, with x^ = (x - mean) rstd and g = dy weight,
//   dx = d_sum + rstd (g - mean of g - x^ mean of g x^), the means being a row's;
//   d_weight, d_bias, d_branch_bias = sums over rows of dy x^, dy and dx.
// RMSNorm's dx is without the mean of g.
void LaunchLayerNormBackward(const LayerNormBackward& tensors, bool centers, FloatType type,
                             const RowsShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
