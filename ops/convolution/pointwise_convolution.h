// Computes a 1x1 convolution at the beginning of a residual block, whose shortcut reads the same input x.
//
// The gradient of x is therefore the sum of two gradients: dy W, where dy is the gradient of the convolution's result
// and W is the weight, and the gradient of the shortcut. The matrix product that computes dy W also adds the shortcut's
// gradient while it writes the result. A separate addition would have to read both gradients and write the sum.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

struct Fork {
  at::Tensor convolved;
  at::Tensor shortcut;  // x itself
};

// Returns the 1x1 convolution of x with weight, and x itself for the shortcut. `x` is [count, inputs, height, width],
// and `weight` is float32 [outputs, inputs, 1, 1]. `convolved` is [count, outputs, height, width] in x's type, with
// gradients for x and weight.
//
// For float16 and bfloat16 with the channels last on a GPU, the weight is rounded to x's type, and its gradient is a
// float32 sum that is never rounded to 16 bits. In all other cases PointwiseConvolutionTwin() runs.
Fork PointwiseConvolution(const at::Tensor& x, const at::Tensor& weight);

// Computes the same result as PointwiseConvolution() with at::conv2d(), on any device. If autocast is on, at::conv2d()
// computes in autocast's type.
Fork PointwiseConvolutionTwin(const at::Tensor& x, const at::Tensor& weight);

}  // namespace lockstep::ops
