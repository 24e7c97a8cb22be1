// Declares the functions that launch the kernels of bias_activation.h. All pointers point to device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"
#include "ops/common/rows_shape.h"
#include "ops/common/sums_to.h"
#include "ops/product/activation.h"

namespace lockstep::ops {

// Returns into how many slices the rows are divided. In backward each slice has one row of partial sums.
int64_t BiasActivationSlices(const RowsShape& shape);

// The tensors of forward. In this struct and the next one, all matrices are [rows, width] and have the type `type` of
// the launch functions below.
struct BiasActivationForward {
  const void* x;
  const float* bias;  // [width]
  void* y;
};

struct BiasActivationBackward {
  const void* x;
  const float* bias;
  const void* dy;
  void* dx;
  float* partials;  // scratch memory: [BiasActivationSlices(shape), width]
  SumsTo d_bias;
};

// Enqueues the kernel that computes y = f(x + bias).
void LaunchBiasActivation(const BiasActivationForward& tensors, Activation activation,
                          FloatType type, const RowsShape& shape, cudaStream_t stream);

// Enqueues the kernels that compute dx = dy f'(x + bias) and, if d_bias is wanted, d_bias = the sums over rows of dx.
void LaunchBiasActivationBackward(const BiasActivationBackward& tensors, Activation activation,
                                  FloatType type, const RowsShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
