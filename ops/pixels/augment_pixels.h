// Converts pixels to floats for training, after it has applied random changes of colours and mixtures
// (data/feed/augment.h).
//
// The steps are: x = pixels / 255. To x[n] the colour operations of sample n are applied, in the order of the sample's
// draws, and each result is clamped to [0, 1]. Inside the box x[n] becomes a x[n] + (1 - a) x[n - 1], where a is
// kOwnInBox. out = 255 x * scale[c] + shift[c], rounded once.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// Augments `pixels`, uint8 [count, channels, height, width], contiguous or channels last. `draws` is float32 [count,
// kAugmentDraws] (ops/pixels/augment_draws.h); its first row holds the mixture. `scale` and `shift` are float32
// [channels]. All are on one device. The result has pixels' shape and memory format, and `dtype`, which is kFloat,
// kHalf or kBFloat16. The first sample is mixed with the last.
//
// The colour operations are adjust_brightness, _contrast, _saturation and _hue of torchvision.transforms.v2.functional
// for float32 images. They are skipped for images that do not have three channels.
//
// On a GPU there are two kernels: one adds up the grey values of the images whose contrast changes, and one does
// everything else. If images are mixed, the colours of each image are computed twice, once for the image itself and
// once for the image after it, so that they need not go through memory. On the CPU AugmentPixelsTwin() runs. Throws
// c10::Error if sizes, types or devices do not fit, or if an image has 2^31 bytes or more.
at::Tensor AugmentPixels(const at::Tensor& pixels, const at::Tensor& draws, const at::Tensor& scale,
                         const at::Tensor& shift, at::ScalarType dtype);

// Computes the same with plain ATen calls, on any device. Tests compare the kernels with it. If `draws` is on a GPU, it
// waits for the GPU.
at::Tensor AugmentPixelsTwin(const at::Tensor& pixels, const at::Tensor& draws,
                             const at::Tensor& scale, const at::Tensor& shift,
                             at::ScalarType dtype);

}  // namespace lockstep::ops
