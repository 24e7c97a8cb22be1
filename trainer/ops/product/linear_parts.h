// Parts that autograd Functions with linear layers share.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/ops/product/weight_layout.h"

namespace lockstep::ops {

// [inputs, outputs], whatever the layout: a view.
at::Tensor WeightMatrix(const at::Tensor& weight, WeightLayout layout);

// [..., n] -> [product, n].
at::Tensor Rows(const at::Tensor& x);

// The reverse, with x's leading sizes. No view for autograd, which would forbid writing to it.
at::Tensor WithRowsOf(const at::Tensor& x, const at::Tensor& rows);

// In backward, of y = x W + b with 16-bit matrices [rows, n] on a GPU. `to`: of GradientToAddTo(). -> what
// backward returns, as AddProduct() and NewGradientSums() do.
at::Tensor WeightGradient(const at::Tensor& to, const at::Tensor& x, const at::Tensor& dy,
                          WeightLayout layout);
at::Tensor BiasGradient(const at::Tensor& to, const at::Tensor& dy);

}  // namespace lockstep::ops
