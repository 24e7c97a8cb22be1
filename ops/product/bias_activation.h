// y[r, c] = f(x[r, c] + bias[c]): adds the bias and applies the activation after a matrix product. Forward and backward
// take one kernel each.
//
// Backward also computes the bias's gradient, which is the sum of x's gradient over the rows. All arithmetic is
// float32, and the bits are the same each time, because there are no atomics.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/product/activation.h"

namespace lockstep::ops {

// `x` is [..., width] in any float type, and `bias` is float32 [width]. The result has x's shape and type, and
// gradients for x and bias. x is kept for backward, so nobody may write to it before backward. The kernels run for
// float32, float16 and bfloat16 on a GPU; in all other cases BiasActivationTwin() runs.
at::Tensor BiasActivation(const at::Tensor& x, const at::Tensor& bias, Activation activation);

// Computes the same with plain ATen calls, on any device. Tests compare the kernels with it, and the CPU uses it.
at::Tensor BiasActivationTwin(const at::Tensor& x, const at::Tensor& bias, Activation activation);

}  // namespace lockstep::ops
