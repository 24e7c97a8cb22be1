// Convolution(): a convolution of 16-bit images with float32 weights, without a bias, in one or more groups of
// channels.
//
// Groups of few channels are computed as one convolution of all channels, whose weight is zero between the groups. If
// the channels of a group are not a power of 2, cuDNN's grouped convolution converts the memory layout of the images
// before and after. On an H100 it then takes 1.1 to 3 times as long as the joined convolution (for RegNetY's groups of
// 24 channels), although it multiplies less.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// `x` is [count, inputs, height, width], and `weight` is float32 [outputs, inputs of a group, size, size]. The result
// is [count, outputs, ...], with gradients for both. If x has 16 bits and is on a GPU, the result has x's type, the
// weight is rounded to this type (rounded_weight.h), and its gradient is added to its .grad (weight_gradient.h). In all
// other cases ConvolutionTwin() runs.
at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                       int64_t padding);

// Returns the number of groups: the channels of x divided by the input channels of the weight.
int64_t GroupsOf(const at::Tensor& x, const at::Tensor& weight);

// Returns whether Convolution() computes these groups as one convolution. If not, it uses ATen's grouped convolution.
bool JoinsGroups(const at::Tensor& x, const at::Tensor& weight);

// Computes the same with plain ATen calls, on any device. If autocast is on, it computes in autocast's type.
at::Tensor ConvolutionTwin(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                           int64_t padding);

}  // namespace lockstep::ops
