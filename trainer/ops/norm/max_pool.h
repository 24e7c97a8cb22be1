// Max-pooling of images whose channels lie together.
//
// y[n, c, i, j] = the greatest x[n, c, u, v] of the window at (stride i - padding, stride j - padding), or the first of
// several equal values; NaN counts as greater than any number. Forward keeps the position of this value in the window,
// in one byte. Backward adds dy to the gradient at this position alone. There are no atomics, so the bits are the same
// each time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// x: [count, channels, height, width] in any float type; 2 padding <= window, as in PyTorch.
// -> [count, channels, (height + 2 padding - window) / stride + 1, width likewise] of x's type, with
// gradient. The kernels are for float32, float16 and bfloat16 channels last on a GPU, and windows of 2
// and 3; else the twin.
at::Tensor MaxPool(const at::Tensor& x, int64_t window, int64_t stride, int64_t padding);

// The plain ATen twin, on any device: what the kernels are compared with, and the CPU's path.
at::Tensor MaxPoolTwin(const at::Tensor& x, int64_t window, int64_t stride, int64_t padding);

}  // namespace lockstep::ops
