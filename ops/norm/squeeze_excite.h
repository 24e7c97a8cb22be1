// Computes squeeze-and-excitation (arXiv:1709.01507): y = x * gate, where the gate of each channel of an image is
// computed from the means of the image's channels, for example as sigmoid(conv2d(silu(conv2d(mean)))).
//
//   const auto [mean, same_x] = Squeeze(x);
//   y = Excite(same_x, <gate of mean>);
//
// ATen needs about 15 passes over tensors of x's size for y and the gradients. In this file forward reads x twice and
// writes y once. Backward reads dy and x to compute the gate's gradient, and then reads dy and writes
//
//   dx = dy * gate + d_mean / (the number of pixels of an image), where d_mean is the gradient of the mean
//
// Protocol of a pair of Squeeze() and Excite():
//   1. Squeeze() also returns x, as the result `same_x`, whose gradient is an input of Squeeze()'s backward.
//   2. The first Excite() that gets `same_x` itself, not a copy, is the other half of the pair.
//   3. Excite()'s backward, which always runs before Squeeze()'s backward, stores dy and the gate in the pair, and
//      returns no gradient of x.
//   4. Squeeze()'s backward computes dx from the stored dy and gate, if they are from the same run of backward, and
//      adds the other gradients of its results.
// If there is no pair (because x was detached, copied or passed to another Excite() before, or because gradients are
// differentiated again), Excite()'s backward itself returns the gradient of x. The gradients are therefore right for
// any use of the results. But torch::autograd::grad() with respect to `same_x`, and a hook on `same_x`, do not get the
// gradient that is passed through the pair.
//
// All sums are float32, and each run gives the same bits, because there are no atomics.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

struct Squeezed {
  at::Tensor mean;    // [count, channels, 1, 1] in x's type
  at::Tensor same_x;  // x in the same memory, for Excite()
};

// Returns the mean of each channel of each image, and x itself. `x` is [count, channels, height, width] in any float
// type. The kernels run on a GPU if x is 16-bit and channels last, and has a multiple of 8 channels. In all other cases
// SqueezeTwin() runs.
Squeezed Squeeze(const at::Tensor& x);

// Returns x * gate. The kernels run if HasSqueezeKernels(x) is true and the gate is [count, channels, 1, 1] in x's
// type. In all other cases ExciteTwin() runs. x and gate are kept for backward, so nobody may write to x or gate before
// backward.
at::Tensor Excite(const at::Tensor& x, const at::Tensor& gate);

// Returns whether the kernels support x.
bool HasSqueezeKernels(const at::Tensor& x);

// Compute the same results as Squeeze() and Excite() with plain ATen calls, on any device.
Squeezed SqueezeTwin(const at::Tensor& x);
at::Tensor ExciteTwin(const at::Tensor& x, const at::Tensor& gate);

}  // namespace lockstep::ops
