// Parts that the convolutions' tests share.
#pragma once

#include "trainer/ops/testing/op_test.h"

namespace lockstep::ops {

class ConvolutionOpTest : public OpTest {
 protected:
  // Of sums whose terms were rounded to dtype(), as their result is; cuDNN rounds float32 to TF32.
  double tolerance() const {
    if (dtype() == at::kFloat) return device() == at::kCUDA ? 2e-3 : 1e-4;
    return dtype() == at::kHalf ? 4e-3 : 2e-2;
  }
  at::Tensor Images(at::IntArrayRef sizes) const {
    return at::randn(sizes, options()).contiguous(at::MemoryFormat::ChannelsLast);
  }
  // Exact in 16 bits.
  at::Tensor Weight(at::IntArrayRef sizes, at::MemoryFormat format) const {
    return at::randn(sizes, options()).to(at::kFloat).contiguous(format).requires_grad_();
  }
  // As models pass it on: in 16 bits on a GPU our operations round it, else autocast does.
  at::Tensor Passed(const at::Tensor& weight) const {
    return Is16BitOnGpu() ? weight : weight.to(dtype());
  }
};

}  // namespace lockstep::ops
