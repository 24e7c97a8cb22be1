// Compares values and gradients with those of PyTorch's convolution in float64.

#include "ops/convolution/pointwise_convolution.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "ops/testing/convolution_op_test.h"
#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

struct Case {
  int64_t count, inputs, outputs, height, width;
};
constexpr Case kCases[] = {
    {1, 8, 8, 1, 1}, {3, 24, 40, 5, 7}, {2, 3, 5, 9, 9}, {4, 256, 64, 14, 14}, {2, 7, 2048, 3, 2}};

class PointwiseConvolutionTest : public ConvolutionOpTest {
 protected:
  at::Tensor WeightOf(const Case& of) const {
    return Weight({of.outputs, of.inputs, 1, 1}, at::MemoryFormat::Contiguous);
  }
  Fork Run(const at::Tensor& x, const at::Tensor& weight) const {
    return PointwiseConvolution(x, Passed(weight));
  }
};

TEST_P(PointwiseConvolutionTest, AddsToTheGradientThatIsThere) {
  const Case of{3, 24, 40, 5, 7};
  const at::Tensor x = Images({of.count, of.inputs, of.height, of.width});
  const at::Tensor dy = Images({of.count, of.outputs, of.height, of.width});
  const at::Tensor weight = WeightOf(of);
  ExpectAddsToGradients([&] { Run(x, weight).convolved.backward(dy); }, {weight});
}

TEST_P(PointwiseConvolutionTest, IsPyTorchs) {
  for (const Case& of : kCases) {
    for (const auto& [uses_convolved, uses_shortcut] :
         {std::pair(true, true), {true, false}, {false, true}}) {
      SCOPED_TRACE(testing::Message() << of.inputs << " to " << of.outputs << ", convolved "
                                      << uses_convolved << ", shortcut " << uses_shortcut);
      const at::Tensor x = Images({of.count, of.inputs, of.height, of.width}).requires_grad_();
      const at::Tensor weight = WeightOf(of);
      const auto [convolved, shortcut] = Run(x, weight);
      EXPECT_EQ(convolved.scalar_type(), dtype());
      EXPECT_TRUE(at::equal(shortcut, x));

      const at::Tensor exact_x = x.detach().to(at::kDouble).requires_grad_();
      const at::Tensor exact_weight = weight.detach().to(at::kDouble).requires_grad_();
      const at::Tensor expected = at::conv2d(exact_x, exact_weight);
      EXPECT_TRUE(IsNear(convolved, expected, tolerance()));
      const at::Tensor dy = Images(expected.sizes());
      const at::Tensor d_shortcut = Images(x.sizes());
      const at::Tensor kept = d_shortcut.clone();
      torch::autograd::variable_list outputs, exact_outputs, gradients, exact_gradients;
      const auto add = [&](const at::Tensor& output, const at::Tensor& exact,
                           const at::Tensor& gradient) {
        outputs.push_back(output);
        exact_outputs.push_back(exact);
        gradients.push_back(gradient);
        exact_gradients.push_back(gradient.to(at::kDouble));
      };
      if (uses_convolved) add(convolved, expected, dy);
      if (uses_shortcut) add(shortcut, exact_x * 1, d_shortcut);
      torch::autograd::backward(outputs, gradients);
      torch::autograd::backward(exact_outputs, exact_gradients);
      EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), tolerance()));
      EXPECT_EQ(weight.grad().defined(), uses_convolved);
      // The gradient of the shortcut, d_shortcut, belongs to the caller, so backward must not change it.
      EXPECT_TRUE(at::equal(d_shortcut, kept));
      if (!uses_convolved) continue;
      EXPECT_TRUE(IsNear(weight.grad(), exact_weight.grad(), tolerance()));
    }
  }
}

TEST_P(PointwiseConvolutionTest, AddsToAGradientThatNobodyElseHas) {
  const Case of{2, 16, 32, 6, 6};
  const at::Tensor x = Images({2, 16, 6, 6}).requires_grad_();
  const at::Tensor weight = WeightOf(of);
  const auto [convolved, shortcut] = Run(x, weight);
  // The gradient of the shortcut is a temporary tensor to which nobody else refers, so backward may overwrite it.
  ((shortcut * 3).sum() + convolved.sum()).backward();
  const at::Tensor expected = weight.detach().to(at::kDouble).sum(0).view({1, 16, 1, 1}) + 3;
  EXPECT_TRUE(IsNear(x.grad(), expected.expand({2, 16, 6, 6}), tolerance()));
}

TEST_P(PointwiseConvolutionTest, TakesFrozenWeightsAndInputs) {
  const Case of{2, 16, 32, 6, 6};
  const at::Tensor x = Images({2, 16, 6, 6});
  const at::Tensor weight = WeightOf(of);
  Run(x, weight).convolved.sum().backward();
  const at::Tensor sums = x.to(at::kDouble).sum({0, 2, 3}).view({1, 16, 1, 1});
  EXPECT_TRUE(IsNear(weight.grad(), sums.expand({32, 16, 1, 1}), tolerance()));

  const at::Tensor leaf = x.detach().requires_grad_();
  Run(leaf, weight.detach()).convolved.sum().backward();
  const at::Tensor expected = weight.detach().to(at::kDouble).sum(0).view({1, 16, 1, 1});
  EXPECT_TRUE(IsNear(leaf.grad(), expected.expand({2, 16, 6, 6}), tolerance()));
}

INSTANTIATE_TEST_SUITE_P(, PointwiseConvolutionTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
