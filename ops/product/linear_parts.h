// Parts that autograd Functions with linear layers share.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/product/weight_layout.h"

namespace lockstep::ops {

// Returns a view of the weight as [inputs, outputs], for either layout.
at::Tensor WeightMatrix(const at::Tensor& weight, WeightLayout layout);

// Returns x, [..., n], as a matrix [rows, n].
at::Tensor Rows(const at::Tensor& x);

// The reverse of Rows(): returns the matrix `rows` with the leading sizes of x. The result is not a view for autograd,
// because autograd would forbid in-place changes of a view that a Function returns.
at::Tensor WithRowsOf(const at::Tensor& x, const at::Tensor& rows);

// Both functions are for the backward of y = x W + b with 16-bit matrices [rows, n] on a GPU. `to` is the result of
// GradientToAddTo(). If `to` is defined, they add the gradient to it and return an undefined tensor; otherwise they
// return the gradient.
at::Tensor WeightGradient(const at::Tensor& to, const at::Tensor& x, const at::Tensor& dy,
                          WeightLayout layout);
at::Tensor BiasGradient(const at::Tensor& to, const at::Tensor& dy);

}  // namespace lockstep::ops
