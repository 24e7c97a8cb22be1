// Compares values and gradients with those of PyTorch's activations in float64. The twins (the plain ATen
// implementations) are tested on any machine, and the kernels are tested if there is a GPU.

#include "ops/product/bias_activation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu,
                                       Activation::kSilu, Activation::kHardswish,
                                       Activation::kGelu, Activation::kGeluTanh};

// The shapes of x. Some widths are no whole packs, and the others are whole packs that do or do not fill a tile. The
// rows do or do not fill the slices of a grid; one shape has no rows.
const std::vector<std::vector<int64_t>> kShapes = {{1, 1},    {7, 3},       {333, 33}, {2, 3, 24},
                                                   {5, 256},  {1000, 3072}, {9, 2056}, {16400, 40},
                                                   {4100, 7}, {0, 16}};

class BiasActivationTest : public OpTest {
 protected:
  double tolerance() const {
    return dtype() == at::kFloat ? 1e-5 : dtype() == at::kHalf ? 1e-3 : 8e-3;
  }
  at::Tensor Random(at::IntArrayRef sizes) const { return 2 * at::randn(sizes, options()); }
  at::Tensor Bias(int64_t width) const {
    return at::randn({width}, options(at::kFloat)).requires_grad_();
  }
};

TEST_P(BiasActivationTest, IsPyTorchs) {
  for (const Activation activation : kActivations) {
    for (const std::vector<int64_t>& sizes : kShapes) {
      SCOPED_TRACE(testing::Message()
                   << at::IntArrayRef(sizes) << ", activation " << static_cast<int>(activation));
      const at::Tensor x = Random(sizes).requires_grad_();
      const at::Tensor bias = Bias(sizes.back());
      const at::Tensor dy = Random(sizes);
      const at::Tensor y = BiasActivation(x, bias, activation);
      EXPECT_EQ(y.scalar_type(), dtype());
      y.backward(dy);
      EXPECT_EQ(bias.grad().scalar_type(), at::kFloat);
      if (x.numel() == 0) {
        EXPECT_EQ(bias.grad().abs().sum().item<float>(), 0);
        continue;
      }

      const at::Tensor exact_x = x.detach().to(at::kDouble).requires_grad_();
      const at::Tensor exact_bias = bias.detach().to(at::kDouble).requires_grad_();
      const at::Tensor expected = BiasActivationTwin(exact_x, exact_bias, activation);
      expected.backward(dy.to(at::kDouble));
      EXPECT_TRUE(IsNear(y, expected, tolerance()));
      EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), tolerance()));
      EXPECT_TRUE(IsNear(bias.grad(), exact_bias.grad(), tolerance()));
    }
  }
}

TEST_P(BiasActivationTest, TheTwinIsPyTorchs) {
  const at::Tensor x = Random({5, 24});
  const at::Tensor bias = Bias(24).detach();
  const at::Tensor sum = x.to(at::kFloat) + bias;
  const auto is = [&](Activation activation, const at::Tensor& expected) {
    return at::equal(BiasActivationTwin(x, bias, activation), expected.to(dtype()));
  };
  EXPECT_TRUE(is(Activation::kNone, sum));
  EXPECT_TRUE(is(Activation::kRelu, at::relu(sum)));
  EXPECT_TRUE(is(Activation::kSilu, at::silu(sum)));
  EXPECT_TRUE(is(Activation::kHardswish, at::hardswish(sum)));
  EXPECT_TRUE(is(Activation::kGelu, at::gelu(sum)));
  EXPECT_TRUE(is(Activation::kGeluTanh, at::gelu(sum, "tanh")));
}

TEST_P(BiasActivationTest, TakesAnyAddressAndStride) {
  const int64_t rows = 37;
  const int64_t width = 264;
  for (const Activation activation : kActivations) {
    const auto shifted = [&] {
      return Random({rows * width + 1}).narrow(0, 1, rows * width).view({rows, width});
    };
    const at::Tensor odd = shifted().requires_grad_();
    const at::Tensor odd_dy = shifted();
    const at::Tensor even = odd.detach().clone().requires_grad_();
    const at::Tensor transposed = odd.detach().t().contiguous().requires_grad_();
    const at::Tensor bias = Bias(width + 1).detach().narrow(0, 1, width).requires_grad_();
    const at::Tensor expected = BiasActivation(even, bias, activation);
    expected.backward(odd_dy.clone());
    for (const at::Tensor& dy : {odd_dy, odd_dy.t().contiguous().t()}) {
      for (const at::Tensor& input : {odd, transposed}) {
        const bool straight = input.size(1) == width;
        const at::Tensor y = BiasActivation(straight ? input : input.t(), bias, activation);
        EXPECT_TRUE(IsNear(y, expected.to(at::kDouble), tolerance()));
        input.mutable_grad() = at::Tensor();
        y.backward(dy);
        EXPECT_TRUE(IsNear(straight ? input.grad() : input.grad().t(), even.grad().to(at::kDouble),
                           tolerance()));
      }
    }
  }
}

TEST_P(BiasActivationTest, GreatAndBadValuesAreAsInPyTorch) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    const at::Tensor x =
        at::tensor(at::ArrayRef<float>{0, -0.0F, 30, -30, 300, -300, 3e4F, -3e4F, inf, nan})
            .view({10, 1})
            .expand({10, 16})
            .contiguous()
            .to(options())
            .requires_grad_();
    const at::Tensor bias = at::zeros({16}, options(at::kFloat));
    const at::Tensor y = BiasActivation(x, bias, activation);
    const at::Tensor twin_x = x.detach().clone().requires_grad_();
    const at::Tensor twin = BiasActivationTwin(twin_x, bias, activation);
    EXPECT_TRUE(at::allclose(y, twin, 1e-2, 1e-6, /*equal_nan=*/true)) << y;
    y.sum().backward();
    twin.sum().backward();
    // Only the slopes at finite values are compared, because PyTorch's formulas give different slopes at infinity.
    EXPECT_TRUE(at::allclose(x.grad().narrow(0, 0, 8), twin_x.grad().narrow(0, 0, 8), 1e-2, 1e-6));
    EXPECT_TRUE(activation == Activation::kNone || activation == Activation::kRelu ||
                x.grad()[9].isnan().all().item<bool>());
  }
}

TEST_P(BiasActivationTest, AddsToTheGradientThatIsThere) {
  for (const int64_t width : {24, 33}) {
    const at::Tensor x = Random({37, width});
    const at::Tensor dy = Random({37, width});
    const at::Tensor bias = Bias(width);
    ExpectAddsToGradients([&] { BiasActivation(x, bias, Activation::kGeluTanh).backward(dy); },
                          {bias});
  }
}

TEST_P(BiasActivationTest, GivesTheSameBitsEachTime) {
  const at::Tensor x = Random({1000, 768}).requires_grad_();
  const at::Tensor bias = Bias(768);
  const at::Tensor dy = Random({1000, 768});
  const auto run = [&] {
    return torch::autograd::grad({BiasActivation(x, bias, Activation::kGelu)}, {x, bias}, {dy});
  };
  const auto first = run();
  const auto second = run();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << i;
}

TEST_P(BiasActivationTest, ComputesOnlyTheGradientsAskedFor) {
  const at::Tensor frozen = Bias(24).detach();
  const at::Tensor x = Random({5, 24}).requires_grad_();
  BiasActivation(x, frozen, Activation::kSilu).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(frozen.grad().defined());
  const at::Tensor bias = Bias(24);
  BiasActivation(x.detach(), bias, Activation::kSilu).sum().backward();
  EXPECT_TRUE(bias.grad().defined());
}

INSTANTIATE_TEST_SUITE_P(, BiasActivationTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
