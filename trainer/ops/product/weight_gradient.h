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

#include "trainer/ops/common/sums_to.h"

namespace lockstep::ops {

// In a Function's forward: the .grad of `weight` that backward is to add to, to be kept in saved_data
// (which, unlike save_for_backward, lets it change in between). Undefined where backward is to return the
// gradient: `weight` is no leaf, or has no .grad that is float32 and lies in memory as the weight does.
at::Tensor GradientToAddTo(const at::Tensor& weight);

// In backward, before something is added to `to`, of GradientToAddTo(): whether it is to be written over what
// `to` holds instead. `to` may have no memory before.
bool TakeOver(const at::Tensor& to);

// In backward: adds `gradient`, of to's layout and any float type.
void AddGradient(const at::Tensor& to, const at::Tensor& gradient);

// In backward, where a kernel can only add to `to`: sees to it that it may.
void PrepareToAdd(const at::Tensor& to);

// In backward, of 16-bit matrices: adds a b to `to`, of as many values, in float32, and returns nothing; where `to` is
// undefined, returns a b in float32.
at::Tensor AddProduct(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b);

// A gradient that a kernel makes of sums over rows.
struct GradientSums {
  at::Tensor result;  // what backward returns: undefined where they are added to a .grad
  SumsTo to;
};

// Of `columns` sums. `to`: of GradientToAddTo().
GradientSums NewGradientSums(const at::Tensor& to, int64_t columns, const at::TensorOptions& like);

}  // namespace lockstep::ops
