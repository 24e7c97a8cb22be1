// Convolution(): convolves 16-bit images with float32 weights, without a bias, in one or more groups of channels.
//
// If a group has few channels, and their number is not a power of 2, the groups are computed as one convolution of all
// channels (the joined convolution), whose weight is zero where input and output belong to different groups. For groups
// of such sizes, cuDNN's grouped convolution would convert the memory layout of its input and of its output. On an
// H100, cuDNN's grouped convolution with RegNetY's groups of 24 channels takes 1.1 to 3 times as long as the joined
// convolution, although the grouped convolution has fewer multiplications.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// Returns the convolution of x with weight, [count, outputs, ...], with gradients for both. `x` is [count, inputs,
// height, width], and `weight` is float32 [outputs, inputs of a group, size, size]. If x has 16 bits and is on a GPU,
// and the weight has one group or JoinsGroups() is true, the result has x's type, the weight is rounded to this type
// (rounded_weight.h), and backward adds the weight's gradient to the weight's .grad (weight_gradient.h). In all other
// cases ConvolutionTwin() runs.
at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                       int64_t padding);

// Returns the number of groups: the channels of x divided by the input channels of the weight.
int64_t GroupsOf(const at::Tensor& x, const at::Tensor& weight);

// Returns whether Convolution() computes the groups of x and weight as one convolution. Returns false if there is only
// one group.
bool JoinsGroups(const at::Tensor& x, const at::Tensor& weight);

// Computes the same result as Convolution() with at::conv2d(), on any device. If autocast is on, at::conv2d() computes
// in autocast's type.
at::Tensor ConvolutionTwin(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                           int64_t padding);

}  // namespace lockstep::ops
