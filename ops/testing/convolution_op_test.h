// The fixture of the convolutions' tests.
#pragma once

#include "ops/testing/op_test.h"

namespace lockstep::ops {

class ConvolutionOpTest : public OpTest {
 protected:
  // Returns the tolerance for sums whose terms and result are rounded to dtype(). cuDNN rounds float32 terms to TF32.
  double tolerance() const {
    if (dtype() == at::kFloat) return device() == at::kCUDA ? 2e-3 : 1e-4;
    return dtype() == at::kHalf ? 4e-3 : 2e-2;
  }
  at::Tensor Images(at::IntArrayRef sizes) const {
    return at::randn(sizes, options()).contiguous(at::MemoryFormat::ChannelsLast);
  }
  // Returns a random weight whose values are exact in 16 bits.
  at::Tensor Weight(at::IntArrayRef sizes, at::MemoryFormat format) const {
    return at::randn(sizes, options()).to(at::kFloat).contiguous(format).requires_grad_();
  }
  // Returns the weight as a model passes it to the operation. For 16-bit types on a GPU the operation itself rounds the
  // weight. In other cases autocast would already have converted the weight to dtype().
  at::Tensor Passed(const at::Tensor& weight) const {
    return Is16BitOnGpu() ? weight : weight.to(dtype());
  }
};

}  // namespace lockstep::ops
