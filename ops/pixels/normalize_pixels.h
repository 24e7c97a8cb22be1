// Converts 8-bit pixels to floats: out[n, c, y, x] = pixels[n, c, y, x] * scale[c] + shift[c], rounded once.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// Returns `out` of the formula above. `pixels` is uint8 [count, channels, height, width], contiguous or channels last.
// `scale` and `shift` are float32 [channels] with any strides, on the device of `pixels`. The result has pixels' shape and memory format,
// and `dtype`, which is kFloat, kHalf or kBFloat16. On a GPU one kernel computes the result; on the CPU
// NormalizePixelsTwin() runs. Throws c10::Error if sizes, types or devices do not fit.
at::Tensor NormalizePixels(const at::Tensor& pixels, const at::Tensor& scale,
                           const at::Tensor& shift, at::ScalarType dtype);

// Computes the same result as NormalizePixels() with plain ATen calls, on any device. Tests compare the kernel with
// this function.
at::Tensor NormalizePixelsTwin(const at::Tensor& pixels, const at::Tensor& scale,
                               const at::Tensor& shift, at::ScalarType dtype);

}  // namespace lockstep::ops
