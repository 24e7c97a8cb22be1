// Depthwise convolutions: each channel has a window of its own, y[n, c] = x[n, c] * weight[c].
//
// Of 3, 5 or 7 pixels a side and with stride 1 or 2, as networks for small devices and ConvNeXt have them. A thread has
// the channels of one load and a few pixels side by side; all sums are float32. The gradient of the weight is summed in
// an order that does not depend on time, so the bits are the same each time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// `x` is [count, channels, height, width], `weight` is [channels, 1, size, size]. The result is [count, channels, ...],
// with gradients for both.
//
// For float16 and bfloat16 on a GPU, with channels in multiples of 8 and a contiguous float32 weight of a size above,
// the weight is not rounded, and its gradient is added to its .grad (weight_gradient.h); y's channels lie last. In all
// other cases DepthwiseConvolutionTwin() runs.
at::Tensor DepthwiseConvolution(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                                int64_t padding);

// The same operation from plain ATen calls, for any device.
at::Tensor DepthwiseConvolutionTwin(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                                    int64_t padding);

// Whether the kernels compute it.
bool HasDepthwiseKernels(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                         int64_t padding);

}  // namespace lockstep::ops
