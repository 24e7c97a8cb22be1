// Computes sum[r, c] = x[r, c] + scale[c] branch[r, c]: a residual addition with layer scale (arXiv:2103.17239). As
// under autocast, the branch has 16 bits and the sum is float32.
//
// The next layer needs the sum rounded to 16 bits, so the same kernel can also write the rounded sum. All arithmetic is
// float32. Each run gives the same bits, because there are no atomics.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

struct ScaledSumResult {
  at::Tensor sum;      // float32
  at::Tensor rounded;  // the sum in branch's type; may be undefined if `rounds` is false
};

// Returns the sum of the formula above. `branch` is [..., width] in a 16-bit type. `x` has branch's shape, and either
// branch's type or float32. `scale` is float32 [width]. `rounds` says whether the rounded sum is wanted. Both results
// have gradients for x, branch and scale. `branch` is kept for backward, so nobody may write to it before backward.
//
// The kernels run on a GPU if the width is a multiple of 8. In all other cases ScaledSumTwin() runs.
ScaledSumResult ScaledSum(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& scale,
                          bool rounds);

// Returns whether the kernels support these arguments.
bool HasScaledSumKernels(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& scale);

// Computes the same results as ScaledSum() with plain ATen calls, on any device, always with the rounded sum.
ScaledSumResult ScaledSumTwin(const at::Tensor& x, const at::Tensor& branch,
                              const at::Tensor& scale);

}  // namespace lockstep::ops
