// Computes y[r, c] = f(x[r, c] + bias[c]): adds the bias to the result x of a matrix product, and applies the
// activation f. Forward is one kernel.
//
// Backward also computes the bias's gradient, which is the sum of x's gradient over the rows. All arithmetic is
// float32, and each run gives the same bits, because there are no atomics.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/product/activation.h"

namespace lockstep::ops {

// Returns y, with x's shape and type, and with gradients for x and bias. `x` is [..., width] in any float type, and
// `bias` is float32 [width]. x is kept for backward, so nobody may write to it before backward. The kernels run for
// float32, float16 and bfloat16 on a GPU; in all other cases BiasActivationTwin() runs.
at::Tensor BiasActivation(const at::Tensor& x, const at::Tensor& bias, Activation activation);

// Computes the same result as BiasActivation() with plain ATen calls, on any device. Tests compare the kernels with
// this function. On the CPU, BiasActivation() calls this function.
at::Tensor BiasActivationTwin(const at::Tensor& x, const at::Tensor& bias, Activation activation);

}  // namespace lockstep::ops
