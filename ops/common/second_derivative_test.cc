#include "ops/common/second_derivative.h"

#include <gtest/gtest.h>

namespace lockstep::ops {
namespace {

at::Tensor Product(const std::vector<at::Tensor>& inputs) { return inputs[0] * inputs[1]; }

// Checks that each gradient is the partial derivative with respect to one input, although y is computed from x.
TEST(GradientsOfTwin, ArePartialDerivatives) {
  const at::Tensor x = at::tensor({2.0, 3.0}).requires_grad_();
  const at::Tensor y = x * x;
  const at::Tensor dy = at::tensor({1.0, 10.0});
  const std::vector<at::Tensor> gradients = GradientsOfTwin({x, y}, dy, Product);
  EXPECT_TRUE(at::equal(gradients[0], y * dy));
  EXPECT_TRUE(at::equal(gradients[1], x * dy));
  // The gradients can be differentiated again: the first gradient is y dy = x^2 dy, whose derivative with respect to x
  // is 2 x dy.
  const auto second = torch::autograd::grad({gradients[0].sum()}, {x});
  EXPECT_TRUE(at::equal(second[0], 2 * x * dy));
}

TEST(GradientsOfTwin, AreUndefinedWhereNoneIsRequired) {
  const at::Tensor x = at::tensor({2.0}).requires_grad_();
  const std::vector<at::Tensor> gradients =
      GradientsOfTwin({at::tensor({5.0}), x}, at::tensor({1.0}), Product);
  EXPECT_FALSE(gradients[0].defined());
  EXPECT_EQ(gradients[1].item<double>(), 5);
}

}  // namespace
}  // namespace lockstep::ops
