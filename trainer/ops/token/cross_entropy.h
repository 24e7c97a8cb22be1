// Softmax and cross-entropy in one or two passes over the logits, without a float32 copy of the logits.
//
// loss = sum over rows r of (1 - s) (L_r - x[r, t_r]) + s (L_r - mean of x[r, :classes]), L_r = log sum over c <
// classes of exp(x[r, c]), where s is the label smoothing. Rows whose target is -100, PyTorch's ignore_index, are left
// out.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// logits: [rows, columns] in any float type; target: int64 [rows] on the logits' device, each in
// [0, classes) or -100. Columns from `classes` on are padding: they count for nothing and get no
// gradient. -> float32, 0-dimensional, with a gradient for logits, of zeros in rows that are left out.
// Throws c10::Error where sizes, types or devices do not fit. The kernels are for float32, float16 and
// bfloat16 on a GPU; else the twin.
//
// The kernels' backward writes the gradient over the logits, which must be of no other use by then. Any
// other target gives a loss of NaN there, and NaN as its row's gradient; the twin throws on the CPU.
//
// `gradient`, float32, 0-dimensional and on the logits' device, is what backward is going to be
// called with, where the caller knows it beforehand. Then the GPU reads each logit once: the
// gradient is over the logits when this returns, and backward gives it back without a look at what
// it is called with, which is the caller's promise. On the CPU, and without gradients to compute,
// it is not looked at.
//
// An operation that has kept the logits for its own backward throws there, as it does after any
// change in place.
at::Tensor CrossEntropySum(const at::Tensor& logits, const at::Tensor& target, int64_t classes,
                           double label_smoothing, const at::Tensor& gradient = {});

// The plain ATen twin, on any device: what the kernels are compared with, and the CPU's path.
at::Tensor CrossEntropySumTwin(const at::Tensor& logits, const at::Tensor& target, int64_t classes,
                               double label_smoothing);

}  // namespace lockstep::ops
