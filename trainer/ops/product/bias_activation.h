// y[r, c] = f(x[r, c] + bias[c]): adds the bias and applies the activation after a matrix product. Forward and backward
// take one kernel each.
//
// Backward also computes the bias's gradient, which is the sum of x's gradient over the rows. All arithmetic is
// float32, and the bits are the same each time, because there are no atomics.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/ops/product/activation.h"

namespace lockstep::ops {

// x: [..., width] in any float type; bias: float32 [width]. -> of x's shape and type, with gradients for
// both. x is kept for backward and must not be written to before it. The kernels are for float32, float16
// and bfloat16 on a GPU; else the twin.
at::Tensor BiasActivation(const at::Tensor& x, const at::Tensor& bias, Activation activation);

// The plain ATen twin, on any device: what the kernels are compared with, and the CPU's path.
at::Tensor BiasActivationTwin(const at::Tensor& x, const at::Tensor& bias, Activation activation);

}  // namespace lockstep::ops
