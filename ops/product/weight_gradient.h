// Lets the backward of an operation add a weight's gradient directly to the weight's .grad.
//
// Usually a backward returns a tensor to autograd, and autograd adds the tensor to .grad in a separate kernel. A step
// of GPT-2 has 150 of these additions, which move more bytes than the optimizer does. A backward that adds directly to
// .grad returns nothing to autograd. The weight's AccumulateGrad node and its hooks, such as the Reducer's, still run,
// after the backward of all operations that use the weight. The first gradient of a step overwrites the memory of .grad
// instead of being added (base/tensor/gradient_memory.h).
//
// Do not call torch::autograd::grad() for a weight that has a .grad: the gradient would be added to .grad and not
// returned.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/common/sums_to.h"

namespace lockstep::ops {

// Returns the .grad of `weight`, to which backward must add the weight's gradient. Must be called in the forward of a
// torch::autograd::Function, which must keep the result in saved_data and not in save_for_backward: a tensor that is
// saved for backward must not change before backward, but a .grad may. The result is undefined if backward must return
// the gradient instead, because `weight` is not a leaf, or has no .grad that is float32 and has the same strides as the
// weight. The result is also undefined if `weight` requires no gradient.
at::Tensor GradientToAddTo(const at::Tensor& weight);

// Returns whether the caller must overwrite the content of `to` instead of adding to it. Must be called in backward
// before the caller writes to `to`, the result of GradientToAddTo(). `to` may have no memory before this call.
bool TakeOver(const at::Tensor& to);

// Adds `gradient` to `to`, in backward. `gradient` must have the layout of `to`, and may have any float type.
void AddGradient(const at::Tensor& to, const at::Tensor& gradient);

// Sets `to` to zero if `to` has no gradient of this step yet. Must be called in backward before a kernel that can only
// add to `to`.
void PrepareToAdd(const at::Tensor& to);

// Computes the product a b in float32, in backward. `a` and `b` are 16-bit matrices. If `to` is defined, adds the
// product to `to` and returns an undefined tensor. Otherwise returns the product.
at::Tensor AddProduct(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b);

// A gradient that a kernel computes as sums over rows.
struct GradientSums {
  at::Tensor result;  // the tensor that backward returns; undefined if the sums go to a .grad
  SumsTo to;
};

// Returns the memory for `columns` sums: that of `to`, the result of GradientToAddTo(), or that of a new tensor with
// the options `like` and type float32 if `to` is undefined.
GradientSums NewGradientSums(const at::Tensor& to, int64_t columns, const at::TensorOptions& like);

}  // namespace lockstep::ops
