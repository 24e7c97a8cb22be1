// Computes the first convolution of a ResNet (the stem): 7x7, stride 2, padding 3, of images with few channels.
//
// Convolutions on tensor cores need at least eight channels, but a picture has three. Each square of 2x2 pixels
// therefore becomes one pixel with four times the channels (space to depth). The 7x7 convolution then becomes a 4x4
// convolution with stride 1 that sums the same products: a row and a column of zeros extend the window to 8x8, and
// zeros fill the remaining channels.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// Returns the convolution of x with weight, [count, outputs, (height + 1) / 2, (width + 1) / 2], with gradients for
// both. `x` is [count, channels, height, width] with any strides, and `weight` is [outputs, channels, 7, 7]. If
// autocast is on, the result has autocast's type. On a GPU the result is channels last.
//
// Squares of 2x2 pixels are used on a GPU if x is float16 or bfloat16 with even height and width, and the weight is
// float32. The weight is then rounded to x's type, and its gradient is float32. In all other cases Convolution() runs,
// which throws the exceptions of at::conv2d if sizes or types do not fit.
at::Tensor StemConvolution(const at::Tensor& x, const at::Tensor& weight);

// Computes the same convolution from squares of 2x2 pixels with ATen's operations, on any device. Height and width must
// be even.
at::Tensor StemConvolutionOfSquares(const at::Tensor& x, const at::Tensor& weight);

// Computes the same result as StemConvolution() with at::conv2d(), on any device.
at::Tensor StemConvolutionTwin(const at::Tensor& x, const at::Tensor& weight);

}  // namespace lockstep::ops
