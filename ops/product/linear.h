// Computes linear layers on 16-bit values with float32 weights, and sums over the rows of a matrix.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/product/weight_layout.h"

namespace lockstep::ops {

// Returns x W + bias, [..., outputs] in x's type, with gradients for x, weight and bias. `x` is [..., inputs], `weight`
// is float32 [inputs, outputs] or [outputs, inputs] according to `layout`, `bias` is float32 [outputs] or undefined,
// and W is `weight` as [inputs, outputs].
//
// For float16 and bfloat16 on a GPU, the weight is rounded to x's type, and the rounded weight is kept for backward.
// The kernel of the matrix product adds the bias. The gradients of weight and bias are float32 sums that are never
// rounded to 16 bits. In all other cases LinearTwin() runs.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  WeightLayout layout);

struct LinearFork {
  at::Tensor y;
  at::Tensor x;
};

// Returns Linear(), and x itself for other operations that read x. The gradients from those operations arrive in
// backward, and the matrix product that computes x's gradient adds them while it writes the result, where a separate
// addition would read both gradients and write the sum.
LinearFork ForkedLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        WeightLayout layout);

// Computes the same result as Linear() with plain ATen calls, on any device. The gradients of weight and bias are
// computed in x's type and then converted to float32.
at::Tensor LinearTwin(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      WeightLayout layout);

// Returns the sums over the rows of x, [rows, columns], as float32 [columns]. The result has no gradient. On a GPU the
// kernel runs for float32, float16 and bfloat16. The kernel reads x once, and uses no atomics, so each run gives the
// same bits. In all other cases at::sum runs.
at::Tensor ColumnSums(const at::Tensor& x);

}  // namespace lockstep::ops
