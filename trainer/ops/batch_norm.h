// BatchNorm by the statistics of the batch, and what follows it in a residual network: the addition
// of the other branch, and ReLU.
//
// y = relu((x - mean) / sqrt(variance + epsilon) weight + bias + residual), mean and biased variance
// being a channel's. All arithmetic is float32's. The same bits each time: no atomics. Where ReLU
// follows the norm alone, backward computes again what it let pass; behind an addition a bit per
// value is kept. Of x, y and residual backward needs x alone.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

struct ChannelNorm {
  at::Tensor weight, bias;  // float32 [channels]
  // float32 [channels], which follow this batch's; or undefined. A batch of one row must not have them:
  // it has no unbiased variance.
  at::Tensor running_mean, running_var;
  double epsilon = 1e-5;
  double momentum = 0.1;
};

enum class Activation { kNone, kRelu };

// x: [count, channels, ...] in any float type; residual: of x's shape and type, or undefined.
// -> y, of x's shape and type, with gradients for x, weight, bias and residual. The kernels are for
// float32, float16 and bfloat16 on a GPU where x is [count, channels], or [count, channels, height,
// width] channels last, and where residual comes with ReLU; else the twin.
at::Tensor BatchNorm(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
                     const at::Tensor& residual = {});

// What follows the norm: y + residual, where there is one, and `activation` of that, in y's memory.
at::Tensor AddAndActivate(at::Tensor y, Activation activation, const at::Tensor& residual);

// The plain ATen twin, on any device: what the kernels are compared with, and the CPU's path.
at::Tensor BatchNormTwin(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
                         const at::Tensor& residual = {});

}  // namespace lockstep::ops
