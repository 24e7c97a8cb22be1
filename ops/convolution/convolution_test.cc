// Compares values and gradients with those of PyTorch's convolution in float64.

#include "ops/convolution/convolution.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/testing/convolution_op_test.h"
#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

struct Case {
  int64_t count, inputs, outputs, height, width, size, stride;
  int64_t groups = 1;
};
constexpr Case kCases[] = {{1, 8, 8, 1, 1, 3, 1},      {3, 24, 40, 5, 7, 3, 1},
                           {2, 3, 5, 9, 9, 3, 2},      {4, 64, 64, 14, 14, 3, 1},
                           {2, 256, 512, 8, 8, 1, 2},  {2, 7, 2048, 3, 2, 1, 1},
                           {3, 48, 48, 9, 7, 3, 1, 2}, {2, 96, 192, 8, 8, 3, 2, 4},
                           {2, 32, 64, 5, 5, 1, 1, 4}, {2, 12, 6, 5, 5, 3, 1, 3}};

class ConvolutionTest : public ConvolutionOpTest {
 protected:
  at::Tensor WeightOf(const Case& of, at::MemoryFormat format) const {
    return Weight({of.outputs, of.inputs / of.groups, of.size, of.size}, format);
  }
  at::Tensor Run(const at::Tensor& x, const at::Tensor& weight, const Case& of) const {
    return Convolution(x, Passed(weight), of.stride, of.size / 2);
  }
};

TEST_P(ConvolutionTest, IsPyTorchs) {
  for (const Case& of : kCases) {
    for (const auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
      SCOPED_TRACE(testing::Message() << of.inputs << " to " << of.outputs << " by " << of.size
                                      << ", stride " << of.stride << ", groups " << of.groups);
      const at::Tensor x = Images({of.count, of.inputs, of.height, of.width}).requires_grad_();
      const at::Tensor weight = WeightOf(of, format);
      const at::Tensor y = Run(x, weight, of);
      EXPECT_EQ(y.scalar_type(), dtype());
      const at::Tensor exact_x = x.detach().to(at::kDouble).requires_grad_();
      const at::Tensor exact_weight = weight.detach().to(at::kDouble).requires_grad_();
      const at::Tensor expected = at::conv2d(exact_x, exact_weight, /*bias=*/{}, of.stride,
                                             of.size / 2, /*dilation=*/1, of.groups);
      EXPECT_TRUE(IsNear(y, expected, tolerance()));
      const at::Tensor dy = Images(expected.sizes());
      y.backward(dy);
      expected.backward(dy.to(at::kDouble));
      EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), tolerance()));
      EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
      EXPECT_TRUE(IsNear(weight.grad(), exact_weight.grad(), tolerance()));
    }
  }
}

TEST_P(ConvolutionTest, AddsToTheGradientThatIsThere) {
  const Case of{3, 24, 40, 5, 7, 3, 1};
  const at::Tensor x = Images({of.count, of.inputs, of.height, of.width});
  const at::Tensor dy = Images({of.count, of.outputs, of.height, of.width});
  for (const auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
    const at::Tensor weight = WeightOf(of, format);
    ExpectAddsToGradients([&] { Run(x, weight, of).backward(dy); }, {weight});
  }
}

TEST_P(ConvolutionTest, ComputesOnlyTheGradientsAskedFor) {
  const Case of{3, 24, 40, 5, 7, 3, 1};
  const at::Tensor x = Images({of.count, of.inputs, of.height, of.width});
  const at::Tensor weight = WeightOf(of, at::MemoryFormat::ChannelsLast);
  Run(x, weight, of).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
  const at::Tensor frozen = weight.detach();
  const at::Tensor input = x.detach().requires_grad_();
  Run(input, frozen, of).sum().backward();
  EXPECT_TRUE(input.grad().defined());
  EXPECT_FALSE(frozen.grad().defined());
}

INSTANTIATE_TEST_SUITE_P(, ConvolutionTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
