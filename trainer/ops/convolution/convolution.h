// Convolution(): a convolution of 16-bit images with float32 weights, without a bias, in one or more groups of channels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// `x` is [count, inputs, height, width], and `weight` is float32 [outputs, inputs of a group, size, size]. The result is
// [count, outputs, ...], with gradients for both. If x has 16 bits and is on a GPU, the result has x's type, the weight
// is rounded to this type (rounded_weight.h), and its gradient is added to its .grad (weight_gradient.h). In all other
// cases ConvolutionTwin() runs.
at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                       int64_t padding);

// The same operation from plain ATen calls, for any device. If autocast is on, it computes in autocast's type.
at::Tensor ConvolutionTwin(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                           int64_t padding);

}  // namespace lockstep::ops
