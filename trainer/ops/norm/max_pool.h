// Max-pooling of images whose channels lie together.
//
// y[n, c, i, j] = the greatest x[n, c, u, v] of the window at (stride i - padding, stride j - padding), the
// first of equals; NaN is greater than all. Backward gives dy to that value alone, found by the
// position in the window that forward kept in a byte: no atomics, so the same bits each time.
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
