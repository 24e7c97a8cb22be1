// sum[r, c] = x[r, c] + scale[c] branch[r, c]: a residual addition with the branch's layer scale (arXiv:2103.17239), as
// autocast computes it: float32 sums beside 16-bit branches.
//
// The next layer rounds the sum to 16 bits again: the same kernel also gives it rounded. All arithmetic is float32. The
// bits are the same each time, because there are no atomics.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

struct ScaledSumResult {
  at::Tensor sum;      // float32
  at::Tensor rounded;  // the same in branch's type, or undefined if it is not wanted
};

// `branch` is [..., width] in 16 bits, `x` has its shape, and its type or float32, and `scale` is float32 [width]. Both
// results have gradients for all three, which one kernel computes. `branch` is kept for backward, so nobody may write
// to it before backward.
//
// The kernels run on a GPU if the width is a multiple of 8. In all other cases ScaledSumTwin() runs.
ScaledSumResult ScaledSum(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& scale,
                          bool rounds);

// Whether the kernels compute it.
bool HasScaledSumKernels(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& scale);

// The same operation from plain ATen calls, for any device.
ScaledSumResult ScaledSumTwin(const at::Tensor& x, const at::Tensor& branch,
                              const at::Tensor& scale);

}  // namespace lockstep::ops
