// BatchNorm with the statistics of the batch, ReLU and max-pooling in one operation, for the stem of a residual
// network.
//
// y[n, c, i, j] = the greatest relu((x[n, c, u, v] - mean) / sqrt(variance + epsilon) weight + bias) of the 3x3 window
// at (2 i - 1, 2 j - 1), where mean and biased variance are those of channel c.
//
// The input of the pooling is never written to memory. All arithmetic is float32, but the values are rounded to x's
// type before they are compared. The pooling therefore takes the value at the same position as with separate operations
// (the first of several equal values). NaN counts as greater than any number. Backward needs x, and one byte for each
// window with the position of its greatest value. There are no atomics, so the bits are the same each time.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/norm/batch_norm.h"

namespace lockstep::ops {

// `x` is [count, channels, height, width] in any float type. The result is [count, channels, (height + 1) / 2, (width +
// 1) / 2], with x's type and with gradients for x, weight and bias. On a GPU the kernels run for float32, float16 and
// bfloat16 with the channels last. In all other cases NormPoolTwin() runs.
at::Tensor NormPool(const at::Tensor& x, const ChannelNorm& norm);

// Computes the same with BatchNormTwin() and MaxPoolTwin(), on any device. Tests compare the kernels with it, and the
// CPU uses it.
at::Tensor NormPoolTwin(const at::Tensor& x, const ChannelNorm& norm);

}  // namespace lockstep::ops
