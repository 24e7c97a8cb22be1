// Squeeze-and-excitation (arXiv:1709.01507): y = x * gate, where the gate of an image's channel, such as
// sigmoid(conv2d(silu(conv2d(mean)))), arises from the mean of the image's channels.
//
//   const auto [mean, same_x] = Squeeze(x);
//   y = Excite(same_x, <gate of mean>);
//
// ATen needs about 15 passes over x for this and its gradients. Here the forward reads x twice and writes y, and the
// backward reads dy and x for the gate's gradient, and then reads dy and writes
//
//   dx = dy * gate + d_mean / pixels
//
// Protocol of a pair:
//   1. Squeeze() gives x once more, as a result whose gradient comes to Squeeze()'s backward.
//   2. The first Excite() that gets this result itself, not a copy, is the other half of the pair.
//   3. Excite()'s backward, which always comes before that of Squeeze(), leaves dy and the gate for it, and gives no
//      gradient of x.
//   4. Squeeze()'s backward computes dx from what was left for it in the same run of backward, and adds what else has
//      come as the gradient of its results.
// Without a pair, because x was detached, copied or excited before, or because gradients are differentiated again,
// Excite() itself gives the gradient of x. So any use of the results has the right gradients. A gradient that is asked
// for with regard to `same_x` itself, or a hook there, does not see what goes the short way.
//
// All sums are float32, and the bits are the same each time, because there are no atomics.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

struct Squeezed {
  at::Tensor mean;    // [count, channels, 1, 1] in x's type
  at::Tensor same_x;  // x, in the same memory: for Excite()
};

// `x` is [count, channels, height, width] in any float type. The kernels run on a GPU if x is 16-bit, lies channels
// last and has a multiple of 8 channels. In all other cases SqueezeTwin() runs.
Squeezed Squeeze(const at::Tensor& x);

// Returns x * gate. The kernels run if they do for Squeeze(), and the gate is [count, channels, 1, 1] in x's type. In
// all other cases ExciteTwin() runs. Both are kept for backward, so nobody may write to them before backward.
at::Tensor Excite(const at::Tensor& x, const at::Tensor& gate);

// Whether the kernels compute it.
bool HasSqueezeKernels(const at::Tensor& x);

// The same operations from plain ATen calls, for any device.
Squeezed SqueezeTwin(const at::Tensor& x);
at::Tensor ExciteTwin(const at::Tensor& x, const at::Tensor& gate);

}  // namespace lockstep::ops
