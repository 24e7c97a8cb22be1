// Converts pixels to floats for training: applies random changes of colours, mixes samples (data/feed/augment.h), and
// normalises.
//
// The steps are: 1. x = pixels / 255. 2. The colour operations of sample n are applied to x[n], in the order of the
// sample's draws, and each result is clamped to [0, 1]. 3. In the box of the draws, x[n] becomes a x[n] + (1 - a) x[n -
// 1], where a is kOwnInBox. 4. out = 255 x * scale[c] + shift[c] for each channel c, rounded once.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// Augments `pixels`, uint8 [count, channels, height, width], contiguous or channels last. `draws` is float32 [count,
// kAugmentDraws] (ops/pixels/augment_draws.h); the first row of `draws` holds the mixture. `scale` and `shift` are
// float32 [channels], with any strides. All tensors are on one device. The result has pixels' shape and memory format, and `dtype`, which
// is kFloat, kHalf or kBFloat16. The last sample counts as the sample before the first.
//
// The colour operations are adjust_brightness, _contrast, _saturation and _hue of torchvision.transforms.v2.functional
// for float32 images. The colour operations are skipped for images that do not have three channels.
//
// On a GPU, images of three channels take two kernels: one adds up the grey values of the images whose contrast
// changes, and one does everything else. Images of another number of channels take one kernel. If images of three
// channels are mixed, the second kernel computes the colours of each image twice, once for the image itself and once
// for the image after it, so that the colours need not be written to memory. On the CPU AugmentPixelsTwin() runs.
// Throws c10::Error if sizes, types or devices do not fit, or if an image has 2^31 bytes or more.
at::Tensor AugmentPixels(const at::Tensor& pixels, const at::Tensor& draws, const at::Tensor& scale,
                         const at::Tensor& shift, at::ScalarType dtype);

// Computes the same result as AugmentPixels() with plain ATen calls, on any device. Tests compare the kernels with this
// function. If `draws` is on a GPU, this function waits for the GPU.
at::Tensor AugmentPixelsTwin(const at::Tensor& pixels, const at::Tensor& draws,
                             const at::Tensor& scale, const at::Tensor& shift,
                             at::ScalarType dtype);

}  // namespace lockstep::ops
