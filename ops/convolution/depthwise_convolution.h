// Computes depthwise convolutions, in which each channel c has its own weight: y[n, c] = x[n, c] * weight[c] + bias[c],
// where * is the convolution.
//
// The GPU kernels support windows of 3x3, 5x5 and 7x7 pixels with stride 1 or 2, as in networks for small devices and
// in ConvNeXt. Each thread computes the channels of one 16-byte load for a few pixels side by side. For 7x7 pixels with
// stride 1 a thread instead computes two channels for more pixels (depthwise_large_window.cuh). All sums are float32.
// The gradient of the weight is summed in a fixed order, so each run gives the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// Returns y, [count, channels, ...], with gradients for x, weight and bias. `x` is [count, channels, height, width],
// `weight` is [channels, 1, size, size], and `bias` is [channels] or undefined.
//
// The kernels run if HasDepthwiseKernels() is true and the bias is float32 or undefined. The kernels do not round
// weight and bias, and their result is channels last. Backward adds the gradients of weight and bias to the .grad of
// weight and bias (weight_gradient.h). In all other cases DepthwiseConvolutionTwin() runs.
at::Tensor DepthwiseConvolution(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias, int64_t stride, int64_t padding);

// Computes the same result as DepthwiseConvolution() with at::conv2d(), on any device.
at::Tensor DepthwiseConvolutionTwin(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias, int64_t stride, int64_t padding);

// Returns whether the kernels support these arguments: x is float16 or bfloat16 on a GPU with a multiple of 8 channels,
// the weight is contiguous, float32, and of size 3, 5 or 7, the stride is 1 or 2, and the padding is less than the
// size.
bool HasDepthwiseKernels(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                         int64_t padding);

}  // namespace lockstep::ops
