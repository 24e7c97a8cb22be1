// Copies and adds 16-bit tensors on a GPU that do not lie densely in memory, such as slices of a concatenation, parts of a
// projection, or their gradients. LibTorch's kernels for such tensors move one element at a time; these move packs of
// eight. The results have the same bits.
//
// The kernels run if neighbours in memory belong to the same dimension of all tensors, in which their number is a multiple
// of eight, and if addresses and the other strides are multiples of 16 bytes.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// Writes `a` to `to`, or a + b if `b` is defined. All have the same sizes. `to` may be `a`. Returns false, and does
// nothing, if there is no kernel for the tensors, or if LibTorch's is as good because they lie alike and without gaps.
bool StridedSum(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to);

}  // namespace lockstep::ops
