// Computes BatchNorm with the statistics of the batch, ReLU and max-pooling in one operation, for the stem of a
// residual network.
//
// y[n, c, i, j] is the greatest relu((x[n, c, u, v] - mean) / sqrt(variance + epsilon) weight + bias) in the 3x3 window
// whose first pixel is (2 i - 1, 2 j - 1), where mean and variance (the biased one) are those of channel c.
//
// The input of the pooling is never written to memory. All arithmetic is float32, but the values are rounded to x's
// type before they are compared. The pooling therefore takes the value at the same position as separate operations do:
// the first of the greatest values. NaN counts as greater than any number. Backward needs x, and one byte for each
// window with the position of its greatest value. There are no atomics, so each run gives the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/norm/batch_norm.h"

namespace lockstep::ops {

// Returns y, [count, channels, (height + 1) / 2, (width + 1) / 2], with x's type and with gradients for x, weight and
// bias. `x` is [count, channels, height, width] in any float type. The kernels run if HasBatchNormKernels() is true for
// x and the norm. In all other cases NormPoolTwin() runs.
at::Tensor NormPool(const at::Tensor& x, const ChannelNorm& norm);

// Computes the same result as NormPool() with BatchNormTwin() and MaxPoolTwin(), on any device. Tests compare the
// kernels with this function. On the CPU, NormPool() calls this function.
at::Tensor NormPoolTwin(const at::Tensor& x, const ChannelNorm& norm);

}  // namespace lockstep::ops
