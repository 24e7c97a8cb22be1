// Computes max-pooling of channels-last images.
//
// y[n, c, i, j] is the greatest x[n, c, u, v] in the window whose first pixel is (stride i - padding, stride j -
// padding). If several values are the greatest, the first of them is taken. NaN counts as greater than any number, and
// of several NaNs the last is taken. Forward keeps the position of the greatest value in the window, in one byte.
// Backward adds dy to the gradient of x only at this position. There are no atomics, so each run gives the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// Returns y, [count, channels, (height + 2 padding - window) / stride + 1, (width + 2 padding - window) / stride + 1],
// with x's type and a gradient. `x` is [count, channels, height, width] in any float type, and 2 padding must be at
// most `window`, as in PyTorch. On a GPU the kernels run for float32, float16 and bfloat16 with the channels last, for
// windows of 2 and 3, if the number of channels is a multiple of ChannelsOfPack(). In all other cases MaxPoolTwin()
// runs.
at::Tensor MaxPool(const at::Tensor& x, int64_t window, int64_t stride, int64_t padding);

struct PoolFork {
  at::Tensor pooled;
  at::Tensor passed;  // x itself
};

// Computes MaxPool() of an x that other operations also read, such as those of the decoder of a U-Net. These operations
// must read `passed` instead of x. The kernel of backward adds the gradient of `passed` to the gradient of the pooling;
// a separate addition would have to read both gradients and write the sum.
PoolFork ForkedMaxPool(const at::Tensor& x, int64_t window, int64_t stride, int64_t padding);

// Computes the same result as MaxPool() with plain ATen calls, on any device. Tests compare the kernels with this
// function. On the CPU, MaxPool() calls this function.
at::Tensor MaxPoolTwin(const at::Tensor& x, int64_t window, int64_t stride, int64_t padding);

}  // namespace lockstep::ops
