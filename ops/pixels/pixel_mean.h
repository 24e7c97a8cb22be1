// Computes the mean of each channel of an image, for the end of a convolutional network.
//
// ATen's backward writes the gradient of x with the channels first, and then copies the gradient to channels last for
// the backward of the preceding convolution. At the end of a ResNet-50, ATen's backward moves four times as many bytes
// as PixelMean()'s backward.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// Returns the mean of each channel's pixels, [count, channels] in x's type. `x` is [count, channels, height, width] in
// any float type. The gradient has x's memory format. If x is not channels last, PixelMeanTwin() runs.
at::Tensor PixelMean(const at::Tensor& x);

// Computes the same result as PixelMean() with plain ATen calls, on any device.
at::Tensor PixelMeanTwin(const at::Tensor& x);

}  // namespace lockstep::ops
