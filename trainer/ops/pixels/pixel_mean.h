// The mean of each channel of an image, which is the last operation of a convolutional network.
//
// ATen's backward writes the gradient with the channels first, and then copies it to channels last for the backward of
// the convolution before. At the end of a ResNet-50, ATen's backward moves four times as many bytes as PixelMean()'s
// backward.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// x: [count, channels, height, width] in any float type -> [count, channels] in x's type, with a gradient, which lies
// as x does. The twin, where x is not channels last.
at::Tensor PixelMean(const at::Tensor& x);

// The plain ATen twin.
at::Tensor PixelMeanTwin(const at::Tensor& x);

}  // namespace lockstep::ops
