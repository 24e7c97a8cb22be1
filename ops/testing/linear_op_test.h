// The fixture of the tests of linear layers.
#pragma once

#include "ops/testing/op_test.h"

namespace lockstep::ops {

class LinearOpTest : public OpTest {
 protected:
  // Returns the tolerance for results that are rounded to dtype().
  double tolerance() const {
    return dtype() == at::kFloat ? 1e-5 : dtype() == at::kHalf ? 1e-3 : 8e-3;
  }
  // Returns the tolerance for the gradients of weights, which is smaller for the fused operation, because the fused
  // operation does not round these gradients.
  double weight_tolerance() const { return Is16BitOnGpu() ? 1e-4 : tolerance(); }
  at::Tensor Random(at::IntArrayRef sizes) const { return at::randn(sizes, options()); }
  at::Tensor Parameter(at::IntArrayRef sizes) const {
    return at::randn(sizes, options().dtype(at::kFloat)).requires_grad_();
  }
  // Returns the tensor in float64, after rounding it to dtype() as the operation rounds weights.
  at::Tensor Exact(const at::Tensor& tensor) const {
    return tensor.detach().to(dtype()).to(at::kDouble).requires_grad_();
  }
};

}  // namespace lockstep::ops
