// BatchNorm by the statistics of the batch, ReLU and max-pooling, as at a residual network's stem.
//
// y[n, c, i, j] = the greatest relu((x[n, c, u, v] - mean) / sqrt(variance + epsilon) weight +
// bias) of the window of 3 at (2 i - 1, 2 j - 1), mean and biased variance being a channel's.
//
// The input of the pooling is never written. All arithmetic is float32, but the values are compared as x's type rounds
// them. The winner, the first of equals, is therefore the same as with the two operations one after the other. NaN is
// greater than all. Backward needs x, and the position of each window's winner in a byte. There are no atomics, so the
// bits are the same each time.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/ops/norm/batch_norm.h"

namespace lockstep::ops {

// x: [count, channels, height, width] in any float type -> [count, channels, (height + 1) / 2,
// (width + 1) / 2] of x's type, with gradients for x, weight and bias. The kernels are for float32,
// float16 and bfloat16 channels last on a GPU; else the twin.
at::Tensor NormPool(const at::Tensor& x, const ChannelNorm& norm);

// The twins of batch_norm.h and max_pool.h, on any device: what the kernels are compared with, and
// the CPU's path.
at::Tensor NormPoolTwin(const at::Tensor& x, const ChannelNorm& norm);

}  // namespace lockstep::ops
