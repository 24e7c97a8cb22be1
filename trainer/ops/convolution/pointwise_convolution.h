// A convolution by 1x1 at the foot of a residual block, beside the shortcut around the block.
//
// Both take x, so x's gradient is a sum: of W dy and of what comes back along the shortcut. The matrix
// product that makes the one adds it to the other as it writes it, which as an addition of its own
// would read both and write the sum.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

struct Fork {
  at::Tensor convolved;
  at::Tensor shortcut;  // x
};

// x: [count, inputs, height, width]; weight: float32 [outputs, inputs, 1, 1]. -> convolved: [count,
// outputs, height, width] of x's type, with gradients for both.
//
// For float16 and bfloat16 channels last on a GPU; the weight is rounded to x's type, and its gradient
// is a float32 sum that was never rounded to 16 bits. Else the twin.
Fork PointwiseConvolution(const at::Tensor& x, const at::Tensor& weight);

// The plain ATen twin, on any device, in autocast's type where there is one.
Fork PointwiseConvolutionTwin(const at::Tensor& x, const at::Tensor& weight);

}  // namespace lockstep::ops
