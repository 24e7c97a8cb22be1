// Computes linear layers on matrices that lie in memory by columns, as the transposed inputs of mixers' token mixing do,
// without transposing them.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// Returns whether ColumnsLinear() computes a linear layer with `weight`, float32 [outputs, inputs], on x faster than
// Linear() does: whether x, [count, rows, inputs] of 16-bit values on a GPU, lies by columns, so that x.transpose(1, 2)
// is contiguous, and the weight is small beside each matrix. (The weight's gradient is first computed for each matrix.)
bool IsForColumnsLinear(const at::Tensor& x, const at::Tensor& weight);

// Returns x W^T + bias, [count, rows, outputs] in x's type. x is [count, rows, inputs], `weight` float32 [outputs,
// inputs], and `bias` float32 [outputs] or undefined. For 16-bit values on a GPU the result and the gradient of x lie by
// columns, and the gradients of weight and bias are float32 sums that are never rounded to 16 bits. In all other cases
// LinearTwin() runs.
at::Tensor ColumnsLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace lockstep::ops
