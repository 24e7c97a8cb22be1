// Linear layers on 16-bit values with float32 weights, and sums over the rows of a matrix.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/ops/product/weight_layout.h"

namespace lockstep::ops {

// x: [..., inputs]; weight: float32, of the layout's shape; bias: float32 [outputs], or undefined.
// -> [..., outputs] in x's type, with gradients for all three.
//
// For float16 and bfloat16 on a GPU the weights are rounded to x's type, the bias is added by the
// matrix product's own kernel, and the weights' gradients are float32 sums that were never rounded
// to 16 bits. The rounded weight is kept for backward. Else the twin.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  WeightLayout layout);

// The plain ATen twin, on any device: its gradients of the weights are in x's type before they are
// float32.
at::Tensor LinearTwin(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      WeightLayout layout);

// x: [rows, columns] -> float32 [columns], sum over rows of x[r, c]. No gradient. On a GPU float32,
// float16 and bfloat16 are read once, with the same bits each time: no atomics. Else at::sum.
at::Tensor ColumnSums(const at::Tensor& x);

}  // namespace lockstep::ops
