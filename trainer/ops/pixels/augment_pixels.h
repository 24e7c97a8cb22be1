// Converts pixels to numbers, and in training first applies the random changes (data/feed/augment.h).
//
// x = pixels / 255; x[n] = the sample's colour operations, in the sample's order, each clamped to [0, 1]; x[n] = a x[n]
// + (1 - a) x[n - 1] inside the box; out = 255 x * scale[c] + shift[c], rounded once.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// pixels: uint8 [count, channels, height, width], contiguous or channels last; draws: float32
// [count, kAugmentDraws] (trainer/ops/pixels/augment_draws.h), of which the first row holds the mixture; scale,
// shift: float32 [channels], all on one device; dtype: kFloat, kHalf or kBFloat16 -> dtype, of
// pixels' shape and memory order. The sample before the first is the last.
//
// The colour operations are torchvision.transforms.v2.functional's adjust_brightness, _contrast,
// _saturation and _hue of float32 images. Images of other than three channels have none: those
// draws are not looked at.
//
// On the GPU one kernel, behind one that sums up the images whose contrast changes; where images
// are mixed, each one's colours are computed twice, for itself and for the one behind it, instead
// of going through memory. On the CPU the ATen twin. Throws c10::Error where sizes, types or devices do not
// fit, and of images of 2^31 bytes.
at::Tensor AugmentPixels(const at::Tensor& pixels, const at::Tensor& draws, const at::Tensor& scale,
                         const at::Tensor& shift, at::ScalarType dtype);

// The plain ATen twin, on any device: what the kernels are compared with. Draws on a GPU it waits
// for.
at::Tensor AugmentPixelsTwin(const at::Tensor& pixels, const at::Tensor& draws,
                             const at::Tensor& scale, const at::Tensor& shift,
                             at::ScalarType dtype);

}  // namespace lockstep::ops
