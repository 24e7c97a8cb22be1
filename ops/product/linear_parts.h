// Helper functions that several autograd Functions with linear layers share.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/product/weight_layout.h"

namespace lockstep::ops {

// Returns a view of the weight as [inputs, outputs], for either layout.
at::Tensor WeightMatrix(const at::Tensor& weight, WeightLayout layout);

// Returns x, [..., n], as a matrix [rows, n].
at::Tensor Rows(const at::Tensor& x);

// Returns the matrix `rows`, [rows, n], as [..., n] with the leading sizes of x. This is the reverse of Rows(). The
// result is not a view for autograd, because autograd would forbid in-place changes of a view that a Function returns.
at::Tensor WithRowsOf(const at::Tensor& x, const at::Tensor& rows);

// Compute the gradients of W and of b in the backward of y = x W + b, for 16-bit matrices [rows, n] on a GPU. `to` is
// the result of GradientToAddTo(). If `to` is defined, both functions add the gradient to `to` and return an undefined
// tensor; otherwise they return the gradient.
at::Tensor WeightGradient(const at::Tensor& to, const at::Tensor& x, const at::Tensor& dy,
                          WeightLayout layout);
at::Tensor BiasGradient(const at::Tensor& to, const at::Tensor& dy);

}  // namespace lockstep::ops
