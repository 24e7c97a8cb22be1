// Converts 8-bit pixels to floats: out[n, c, y, x] = pixels[n, c, y, x] * scale[c] + shift[c], rounded once.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// Computes pixels * scale + shift for each channel. `pixels` is uint8 [count, channels, height, width], contiguous or
// channels last. `scale` and `shift` are float32 [channels] on the same device. The result has pixels' shape and memory
// format, and `dtype`, which is kFloat, kHalf or kBFloat16. On a GPU one kernel reads each byte once; on the CPU
// NormalizePixelsTwin() runs. Throws c10::Error if sizes, types or devices do not fit.
at::Tensor NormalizePixels(const at::Tensor& pixels, const at::Tensor& scale,
                           const at::Tensor& shift, at::ScalarType dtype);

// Computes the same with plain ATen calls, on any device. Tests compare the kernel with it.
at::Tensor NormalizePixelsTwin(const at::Tensor& pixels, const at::Tensor& scale,
                               const at::Tensor& shift, at::ScalarType dtype);

}  // namespace lockstep::ops
