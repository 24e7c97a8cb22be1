// Values and gradients against PyTorch's convolution in float64.

#include "trainer/ops/stem_convolution.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "trainer/ops/op_test.h"

namespace lockstep::ops {
namespace {

class StemConvolutionTest : public OpTest {
 protected:
  // Of sums whose terms were rounded to dtype(), as their result is; cuDNN rounds float32 to TF32.
  double tolerance() const {
    if (dtype() == at::kFloat) return device() == at::kCUDA ? 2e-3 : 1e-4;
    return dtype() == at::kHalf ? 4e-3 : 2e-2;
  }
};

TEST_P(StemConvolutionTest, IsPyTorchs) {
  const std::vector<std::vector<int64_t>> shapes = {
      {2, 3, 32, 32}, {1, 1, 8, 6}, {3, 4, 10, 24}, {2, 5, 2, 2}, {2, 3, 15, 16}};
  for (const std::vector<int64_t>& sizes : shapes) {
    const bool is_even = sizes[2] % 2 == 0 && sizes[3] % 2 == 0;
    for (const auto& convolution : {StemConvolution, StemConvolutionOfSquares}) {
      if (!is_even && convolution == StemConvolutionOfSquares) continue;
      for (const auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
        SCOPED_TRACE(at::IntArrayRef(sizes));
        const at::Tensor x = at::randn(sizes, options()).contiguous(format).requires_grad_();
        const at::Tensor weight = at::randn({8, sizes[1], 7, 7}, options()).requires_grad_();
        const at::Tensor exact_x = x.detach().to(at::kDouble).requires_grad_();
        const at::Tensor exact_weight = weight.detach().to(at::kDouble).requires_grad_();
        const at::Tensor expected = StemConvolutionTwin(exact_x, exact_weight);
        const at::Tensor y = convolution(x, weight);
        EXPECT_EQ(y.scalar_type(), dtype());
        EXPECT_TRUE(IsNear(y, expected, tolerance()));
        const at::Tensor dy = at::randn(expected.sizes(), options());
        y.backward(dy);
        expected.backward(dy.to(at::kDouble));
        EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), tolerance()));
        EXPECT_TRUE(IsNear(weight.grad(), exact_weight.grad(), tolerance()));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, StemConvolutionTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
