// The mean of each channel of an image, which is the last operation of a convolutional network.
//
// ATen's backward divides and spreads the gradient with the channels first, and then copies it to channels last for
// the convolution before. At the end of a ResNet-50 this moves four times the bytes.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// x: [count, channels, height, width] in any float type -> [count, channels] in x's type, with a gradient, which lies
// as x does. The twin, where x is not channels last.
at::Tensor PixelMean(const at::Tensor& x);

// The plain ATen twin.
at::Tensor PixelMeanTwin(const at::Tensor& x);

}  // namespace lockstep::ops
