// Computes softmax and cross-entropy in one or two passes over the logits, without a float32 copy of the logits.
//
// loss = sum over rows r of (1 - s) (L_r - x[r, t_r]) + s (L_r - mean of x[r, :classes]), where x are the logits, t_r
// is the target of row r, L_r is the log of the sum of exp(x[r, c]) over c < classes, and s is the label smoothing.
// Rows whose target is kIgnoredTarget are left out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/token/cross_entropy_kernel.h"

namespace lockstep::ops {

// Returns the loss of the formula above, float32 and 0-dimensional, with a gradient for logits, which is 0 in rows that
// are left out. `logits` is [rows, columns] in any float type. `target` is int64 [rows] on the logits' device, and each
// target is in [0, classes) or is kIgnoredTarget. The columns from `classes` on are padding: they have no influence on
// the loss and get a gradient of 0. Throws c10::Error if sizes, types or devices do not fit. The kernels run for
// float32, float16 and bfloat16 on a GPU; in all other cases CrossEntropySumTwin() runs.
//
// The backward of the kernels overwrites the logits with their gradient, so nobody may use the logits after backward.
// If a target is neither in [0, classes) nor kIgnoredTarget, the kernels compute NaN as the loss and as the gradient of
// the target's row; on the CPU CrossEntropySumTwin() throws.
//
// A caller that knows beforehand with which gradient backward will be called can pass it as `gradient`, float32 and
// 0-dimensional on the logits' device. Then the GPU reads each logit only once from GPU memory: the kernel that
// computes the loss also overwrites the logits with their gradient, and backward only returns this gradient. The caller
// must call backward with the same gradient, which backward does not check. On the CPU, and if no gradient is needed,
// `gradient` is ignored.
//
// If another operation has kept the logits for its own backward, the backward of that operation throws, as it does
// after any change in place.
at::Tensor CrossEntropySum(const at::Tensor& logits, const at::Tensor& target, int64_t classes,
                           double label_smoothing, const at::Tensor& gradient = {});

// Computes the same result as CrossEntropySum() with plain ATen calls, on any device. Tests compare the kernels with
// this function. On the CPU, CrossEntropySum() calls this function.
at::Tensor CrossEntropySumTwin(const at::Tensor& logits, const at::Tensor& target, int64_t classes,
                               double label_smoothing);

}  // namespace lockstep::ops
