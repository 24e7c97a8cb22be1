// Convolution(): a convolution of 16-bit images with float32 weights, without a bias.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// x: [count, inputs, height, width]; weight: float32 [outputs, inputs, size, size]. -> [count, outputs, ...],
// with gradients for both. Where x has 16 bits on a GPU so has the result, the weight is used in them
// (rounded_weight.h) and its gradient is added to its .grad (weight_gradient.h). Else the twin.
at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                       int64_t padding);

// The plain ATen twin, on any device, in autocast's type where there is one.
at::Tensor ConvolutionTwin(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                           int64_t padding);

}  // namespace lockstep::ops
