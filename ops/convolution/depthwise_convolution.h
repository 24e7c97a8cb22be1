// Depthwise convolutions: each channel has its own kernel, y[n, c] = x[n, c] * weight[c] + bias[c], where * is the
// convolution.
//
// The GPU kernels support windows of 3x3, 5x5 and 7x7 pixels with stride 1 or 2, as in networks for small devices and
// in ConvNeXt. Each thread computes the channels of one 16-byte load for a few pixels side by side. For 7x7 pixels with
// stride 1 a thread instead computes two channels for more pixels (depthwise_large_window.cuh). All sums are float32.
// The gradient of the weight is summed in a fixed order, so the bits are the same each time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// `x` is [count, channels, height, width], `weight` is [channels, 1, size, size], and `bias` is [channels] or
// undefined. The result is [count, channels, ...], with gradients for all three.
//
// The kernels run if HasDepthwiseKernels() is true and the bias is float32 or undefined. They do not round weight and
// bias, and they add the gradients of both to their .grad (weight_gradient.h). Their result is channels last. In all
// other cases DepthwiseConvolutionTwin() runs.
at::Tensor DepthwiseConvolution(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias, int64_t stride, int64_t padding);

// Computes the same with plain ATen calls, on any device.
at::Tensor DepthwiseConvolutionTwin(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias, int64_t stride, int64_t padding);

// Returns whether the kernels support these arguments: float16 or bfloat16 on a GPU, a multiple of 8 channels, and a
// contiguous float32 weight of a size above.
bool HasDepthwiseKernels(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                         int64_t padding);

}  // namespace lockstep::ops
