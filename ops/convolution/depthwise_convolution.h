// Depthwise convolutions: each channel has a window of its own, y[n, c] = x[n, c] * weight[c] + bias[c].
//
// Windows have 3, 5 or 7 pixels a side and stride 1 or 2, as in networks for small devices and in ConvNeXt. A thread
// has the channels of one load and a few pixels side by side; for 7 pixels with stride 1 it has two channels and more
// pixels (depthwise_large_window.cuh). All sums are float32. The gradient of the weight is summed in an order that does
// not depend on time, so the bits are the same each time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// `x` is [count, channels, height, width], `weight` is [channels, 1, size, size], and `bias` is [channels] or
// undefined. The result is [count, channels, ...], with gradients for all three.
//
// For float16 and bfloat16 on a GPU, with channels in multiples of 8 and a contiguous float32 weight of a size above,
// weight and bias, which then is float32, are not rounded, and their gradients are added to their .grad
// (weight_gradient.h); y's channels lie last. In all other cases DepthwiseConvolutionTwin() runs.
at::Tensor DepthwiseConvolution(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias, int64_t stride, int64_t padding);

// The same operation from plain ATen calls, for any device.
at::Tensor DepthwiseConvolutionTwin(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias, int64_t stride, int64_t padding);

// Whether the kernels compute it, with a float32 bias or none.
bool HasDepthwiseKernels(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                         int64_t padding);

}  // namespace lockstep::ops
