// Converts pixels to numbers: out[n, c, y, x] = pixels[n, c, y, x] * scale[c] + shift[c], rounded once.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// pixels: uint8 [count, channels, height, width], contiguous or channels last; scale, shift: float32
// [channels], on the same device; dtype: kFloat, kHalf or kBFloat16 -> dtype, of pixels' shape and
// memory order. On the GPU one fused kernel that reads each byte once, on the CPU its ATen twin. Throws
// c10::Error where sizes, types or devices do not fit.
at::Tensor NormalizePixels(const at::Tensor& pixels, const at::Tensor& scale,
                           const at::Tensor& shift, at::ScalarType dtype);

// The plain ATen twin, on any device: what the kernel is compared with.
at::Tensor NormalizePixelsTwin(const at::Tensor& pixels, const at::Tensor& scale,
                               const at::Tensor& shift, at::ScalarType dtype);

}  // namespace lockstep::ops
