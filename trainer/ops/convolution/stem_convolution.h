// The first convolution of a ResNet: 7x7, stride 2, padding 3, of images of few channels.
//
// A tensor core needs at least eight channels, and a picture has three. Each square of 2x2 pixels therefore becomes one
// pixel with four times the channels (space to depth). The 7x7 convolution then becomes a 4x4 convolution with stride 1
// that sums the same products: a row and a column of zeros extend the window to 8x8, and zeros fill the remaining
// channels.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// x: [count, channels, height, width], of any strides; weight: [outputs, channels, 7, 7]. -> [count,
// outputs, (height + 1) / 2, (width + 1) / 2], in autocast's type where there is one, on a GPU channels
// last, with gradients for both. In 2x2 pixels for float16 and bfloat16 of even sides on a GPU, with a
// weight in float32, which is rounded to x's type and whose gradient is float32; else Convolution(), which
// throws what at::conv2d does where sizes or types do not fit.
at::Tensor StemConvolution(const at::Tensor& x, const at::Tensor& weight);

// The same in 2x2 pixels by ATen's operations, on any device; sides must be even.
at::Tensor StemConvolutionOfSquares(const at::Tensor& x, const at::Tensor& weight);

// The plain ATen twin.
at::Tensor StemConvolutionTwin(const at::Tensor& x, const at::Tensor& weight);

}  // namespace lockstep::ops
