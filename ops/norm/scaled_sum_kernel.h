// Declares the functions that launch the kernels of scaled_sum.h. All pointers point to device memory. Matrices are
// [rows, width], and the width is a multiple of 8.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"
#include "ops/common/rows_shape.h"
#include "ops/common/sums_to.h"

namespace lockstep::ops {

struct ScaledSumTypes {
  FloatType x;       // the type of x and dx: float32, or the same as `branch`
  FloatType branch;  // the 16-bit type of branch, d_branch, rounded and d_rounded
};

struct ScaledSumForward {
  const void* x;
  const void* branch;
  const float* scale;  // [width]
  float* sum;
  void* rounded;  // or nullptr
};

struct ScaledSumBackward {
  const float* d_sum;     // or nullptr
  const void* d_rounded;  // or nullptr
  const void* branch;
  const float* scale;
  void* dx;  // d_sum + d_rounded; nullptr if dx is not wanted
  void* d_branch;
  float* partials;  // scratch memory: [ScaledSumSlices(shape), width]
  SumsTo d_scale;
};

// Returns into how many slices the rows are divided. In backward each slice has one row of partial sums.
int64_t ScaledSumSlices(const RowsShape& shape);

// Enqueues the kernel that computes sum and rounded.
void LaunchScaledSum(const ScaledSumForward& tensors, const ScaledSumTypes& types,
                     const RowsShape& shape, cudaStream_t stream);

// Enqueues the kernels that compute the gradients.
void LaunchScaledSumBackward(const ScaledSumBackward& tensors, const ScaledSumTypes& types,
                             const RowsShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
