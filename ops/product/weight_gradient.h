// Lets the backward of an operation add a weight's gradient directly to the weight's .grad.
//
// Usually a backward returns a tensor to autograd, and autograd adds the tensor to .grad in a separate kernel. A step
// of GPT-2 has 150 of these additions, and they move more bytes than the optimizer does. A backward that adds directly
// to .grad returns nothing to autograd. The weight's AccumulateGrad and its hooks, such as the Reducer's, still run,
// after everything that uses the weight. The first gradient of a step overwrites the memory, so nothing is added
// (base/tensor/gradient_memory.h).
//
// Do not call torch::autograd::grad() for a weight that has a .grad: the gradient would be added to .grad and not
// returned.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/common/sums_to.h"

namespace lockstep::ops {

// Call it in a Function's forward. Returns the .grad of `weight` to which backward must add its gradient. Keep the
// result in saved_data, because autograd forbids changes of tensors in save_for_backward before backward. The result is
// undefined if backward must return the gradient instead, because `weight` is not a leaf, or has no .grad that is
// float32 and has the same strides as the weight.
at::Tensor GradientToAddTo(const at::Tensor& weight);

// Call it in backward before something is added to `to`, the result of GradientToAddTo(). Returns true if the caller
// must overwrite the content of `to` instead of adding to it. `to` may have no memory before this call.
bool TakeOver(const at::Tensor& to);

// Call it in backward: adds `gradient`, which has the layout of `to` and any float type, to `to`.
void AddGradient(const at::Tensor& to, const at::Tensor& gradient);

// Call it in backward before a kernel that can only add to `to`. If `to` has no gradient yet, sets it to zero.
void PrepareToAdd(const at::Tensor& to);

// Call it in backward. `a` and `b` are 16-bit matrices. If `to` is defined, adds a b to it in float32 and returns an
// undefined tensor. Otherwise returns a b in float32.
at::Tensor AddProduct(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b);

// A gradient that a kernel computes as sums over rows.
struct GradientSums {
  at::Tensor result;  // what backward returns; undefined if the sums are added to a .grad
  SumsTo to;
};

// Returns the memory for `columns` sums. `to` is the result of GradientToAddTo().
GradientSums NewGradientSums(const at::Tensor& to, int64_t columns, const at::TensorOptions& like);

}  // namespace lockstep::ops
