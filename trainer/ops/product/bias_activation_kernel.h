// The kernels of bias_activation.h. All pointers point to device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/common/float_type.h"
#include "trainer/ops/common/rows_shape.h"
#include "trainer/ops/common/sums_to.h"
#include "trainer/ops/product/activation.h"

namespace lockstep::ops {

// In how many slices the rows are shared out; backward's each have a row of partial sums.
int64_t BiasActivationSlices(const RowsShape& shape);

// [rows, width] of the type given with them.
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
  float* partials;  // [BiasActivationSlices(shape), width] of scratch
  SumsTo d_bias;
};

// Enqueues y = f(x + bias).
void LaunchBiasActivation(const BiasActivationForward& tensors, Activation activation,
                          FloatType type, const RowsShape& shape, cudaStream_t stream);

// Enqueues dx = dy f'(x + bias) and, where they are wanted, d_bias = sums over rows of dx.
void LaunchBiasActivationBackward(const BiasActivationBackward& tensors, Activation activation,
                                  FloatType type, const RowsShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
