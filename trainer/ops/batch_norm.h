// BatchNorm by the statistics of the batch, and what follows it in a residual network: the addition
// of the other branch, and ReLU.
//
// y = relu((x - mean) / sqrt(variance + epsilon) weight + bias + residual), mean and biased variance
// being a channel's. All arithmetic is float32's. The same bits each time: the order of all sums is
// fixed. Where ReLU follows the norm alone, backward computes again what it let pass; behind an
// addition a bit per value is kept. Of x, y and residual backward needs x alone.
//
// Where the other branch ends in a norm, too, as where a residual network's stages begin, the two
// are joined: y = relu(norm_a(x_a) + norm_b(x_b)) comes from one pass, and neither what norm_b
// gives nor its gradient is ever written.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/ops/activation.h"

namespace lockstep::ops {

struct ChannelNorm {
  at::Tensor weight, bias;  // float32 [channels]
  // float32 [channels], which follow this batch's; or undefined. A batch of one row must not have them:
  // it has no unbiased variance.
  at::Tensor running_mean, running_var;
  // int64, 0-dimensional, to which 1 is added; or undefined.
  at::Tensor num_batches_tracked;
  // NewNormCounters(), which no two operations may use at the same time, as on two streams; or
  // undefined: the kernels then get new ones each time, which takes a kernel more.
  at::Tensor counters;
  double epsilon = 1e-5;
  double momentum = 0.1;
};

// x: [count, channels, ...] in any float type; residual: of x's shape and type, or undefined.
// activation: kNone or kRelu. -> y, of x's shape and type, with gradients for x, weight, bias and
// residual. The kernels are for float32, float16 and bfloat16 on a GPU where x is [count, channels], or
// [count, channels, height, width] channels last, and where residual comes with ReLU; else the twin.
at::Tensor BatchNorm(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
                     const at::Tensor& residual = {});

// y = relu(norm_a(x_a) + norm_b(x_b)); the kernels round nothing but y.
// x_a: [count, channels, ...] in any float type; x_b: of x_a's shape and type. -> y, of x_a's shape
// and type, with gradients for x_a, x_b and each norm's weight and bias. The kernels are for the
// types and layouts that BatchNorm has them for; else the twin.
at::Tensor JoinBatchNorms(const at::Tensor& x_a, const ChannelNorm& norm_a, const at::Tensor& x_b,
                          const ChannelNorm& norm_b);

// What follows the norm: y + residual, where there is one, and `activation` of that, in y's memory.
at::Tensor AddAndActivate(at::Tensor y, Activation activation, const at::Tensor& residual);

// What the kernels of one norm need besides: zeros, which each kernel leaves as zeros.
at::Tensor NewNormCounters(int64_t channels, at::Device device);

// Whether the kernels take x and the norm.
bool HasBatchNormKernels(const at::Tensor& x, const ChannelNorm& norm);

// Where they do: float32 [2, channels], mean and 1 / sqrt(variance + epsilon); the running ones follow,
// and the batch is counted.
at::Tensor BatchStatistics(const at::Tensor& x, const ChannelNorm& norm);

// The plain ATen twin, on any device: what the kernels are compared with, and the CPU's path.
at::Tensor BatchNormTwin(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
                         const at::Tensor& residual = {});

// The twin of that, of two BatchNormTwins: what each gives is rounded to x_a's type.
at::Tensor JoinBatchNormsTwin(const at::Tensor& x_a, const ChannelNorm& norm_a,
                              const at::Tensor& x_b, const ChannelNorm& norm_b);

}  // namespace lockstep::ops
