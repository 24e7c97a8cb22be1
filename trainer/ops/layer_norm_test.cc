// Values and gradients against PyTorch's layer norm in float64: the twins everywhere, the kernels
// where there is a GPU.

#include "trainer/ops/layer_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "trainer/ops/op_test.h"

namespace lockstep::ops {
namespace {

constexpr double kEpsilon = 1e-5;

// Rows that end within a block and beyond a grid; widths of less than a pack, of packs that fill a
// warp or a block and that do not, and of more than registers hold.
const std::vector<std::vector<int64_t>> kShapes = {
    {1, 1},    {7, 1},      {333, 3},   {16384, 3},   {2, 3, 24},  {333, 24},
    {5, 33},   {9, 256},    {7, 512},   {333, 384},   {100, 384},  {16384, 384},
    {11, 776}, {1000, 768}, {7, 1024},  {41, 1600},   {3, 1601},   {600, 2048},
    {7, 4096}, {7, 8192},   {2, 20000}, {5000, 1600}, {601, 3200}, {600, 8192}};

class LayerNormTest : public OpTest {
 protected:
  // Of what is rounded to dtype().
  double tolerance() const {
    return dtype() == at::kFloat ? 1e-4 : dtype() == at::kHalf ? 1e-3 : 8e-3;
  }
  // Of rows of one value ATen's CPU takes differences of what it has multiplied by their rstd, 316.
  static double WeightTolerance(int64_t width) { return width == 1 ? 1e-3 : 1e-4; }
  double Tolerance(int64_t width) const { return std::max(tolerance(), WeightTolerance(width)); }
  // Float64 on a CPU takes its time.
  bool IsForGpus(at::IntArrayRef sizes) const {
    return device() == at::kCPU && c10::multiply_integers(sizes) > 300'000;
  }
  at::Tensor Random(at::IntArrayRef sizes) const { return 2 * at::randn(sizes, options()) + 0.5; }
  at::Tensor Weight(int64_t width) const {
    return (at::randn({width}, options().dtype(at::kFloat)) + 1).requires_grad_();
  }
};

at::Tensor Exact(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).requires_grad_();
}

at::Tensor ExactLayerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, kEpsilon);
}

TEST_P(LayerNormTest, IsPyTorchs) {
  for (const std::vector<int64_t>& sizes : kShapes) {
    if (IsForGpus(sizes)) continue;
    SCOPED_TRACE(at::IntArrayRef(sizes));
    const at::Tensor x = Random(sizes).requires_grad_();
    const at::Tensor weight = Weight(sizes.back());
    const at::Tensor bias = Weight(sizes.back());
    const at::Tensor dy = Random(sizes);
    const at::Tensor y = LayerNorm(x, weight, bias, kEpsilon);
    EXPECT_EQ(y.scalar_type(), dtype());
    y.backward(dy);

    const at::Tensor exact[] = {Exact(x), Exact(weight), Exact(bias)};
    const at::Tensor expected = ExactLayerNorm(exact[0], exact[1], exact[2]);
    expected.backward(dy.to(at::kDouble));
    EXPECT_TRUE(IsNear(y, expected, Tolerance(sizes.back())));
    EXPECT_TRUE(IsNear(x.grad(), exact[0].grad(), Tolerance(sizes.back())));
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
    EXPECT_TRUE(IsNear(weight.grad(), exact[1].grad(), WeightTolerance(sizes.back())));
    EXPECT_TRUE(IsNear(bias.grad(), exact[2].grad(), WeightTolerance(sizes.back())));
  }
}

TEST_P(LayerNormTest, AddsTheBranchAsPyTorchDoes) {
  for (const std::vector<int64_t>& sizes : kShapes) {
    if (IsForGpus(sizes)) continue;
    for (const auto& [uses_sum, uses_y, has_bias] : {std::tuple(true, true, true),
                                                     {true, true, false},
                                                     {true, false, true},
                                                     {false, true, true},
                                                     {true, false, false},
                                                     {false, true, false}}) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << ", gradient of sum " << uses_sum
                                      << ", y " << uses_y << ", bias " << has_bias);
      const int64_t width = sizes.back();
      const at::Tensor x = Random(sizes).requires_grad_();
      const Branch branch{Random(sizes).requires_grad_(), has_bias ? Weight(width) : at::Tensor()};
      const at::Tensor weight = Weight(width);
      const at::Tensor bias = Weight(width);
      const at::Tensor d_sum = Random(sizes);
      const at::Tensor dy = Random(sizes);
      const auto [sum, y] = AddLayerNorm(x, branch, weight, bias, kEpsilon);
      EXPECT_EQ(sum.scalar_type(), dtype());
      at::Tensor exact_sum = x.detach().to(at::kDouble) + branch.values.detach().to(at::kDouble);
      if (has_bias) exact_sum = exact_sum + branch.bias.detach().to(at::kDouble);
      EXPECT_TRUE(IsNear(sum, exact_sum, tolerance()));
      if (!has_bias) {
        EXPECT_TRUE(at::equal(sum, x + branch.values));
      }
      EXPECT_EQ(y.scalar_type(), dtype());
      torch::autograd::variable_list outputs;
      torch::autograd::variable_list gradients;
      if (uses_sum) outputs.push_back(sum), gradients.push_back(d_sum);
      if (uses_y) outputs.push_back(y), gradients.push_back(dy);
      torch::autograd::backward(outputs, gradients);

      const at::Tensor exact[] = {Exact(sum), Exact(weight), Exact(bias)};
      const at::Tensor expected = ExactLayerNorm(exact[0], exact[1], exact[2]);
      EXPECT_TRUE(IsNear(y, expected, Tolerance(width)));
      at::Tensor d_input = at::zeros_like(exact[0]);
      if (uses_y) {
        expected.backward(dy.to(at::kDouble));
        d_input += exact[0].grad();
      }
      if (uses_sum) d_input += d_sum;
      EXPECT_TRUE(IsNear(x.grad(), d_input, Tolerance(width)));
      EXPECT_TRUE(IsNear(branch.values.grad(), d_input, Tolerance(width)));
      if (has_bias) {
        EXPECT_EQ(branch.bias.grad().scalar_type(), at::kFloat);
        // The twin sums what is rounded, as the kernel for any width does.
        EXPECT_TRUE(IsNear(branch.bias.grad(), d_input.flatten(0, -2).sum(0), Tolerance(width)));
      }
      EXPECT_EQ(weight.grad().defined(), uses_y);
      if (!uses_y) continue;
      EXPECT_TRUE(IsNear(weight.grad(), exact[1].grad(), WeightTolerance(width)));
      EXPECT_TRUE(IsNear(bias.grad(), exact[2].grad(), WeightTolerance(width)));
    }
  }
}

TEST_P(LayerNormTest, AddsToTheGradientsThatAreThere) {
  for (const int64_t width : {24, 33, 768, 1024}) {
    const at::Tensor x = Random({37, width});
    const at::Tensor dy = Random({37, width});
    const at::Tensor weight = Weight(width);
    const at::Tensor bias = Weight(width);
    const at::Tensor branch_bias = Weight(width);
    ExpectAddsToGradients([&] { LayerNorm(x, weight, bias, kEpsilon).backward(dy); },
                          {weight, bias});
    ExpectAddsToGradients(
        [&] {
          const auto [sum, y] = AddLayerNorm(x, {x, branch_bias}, weight, bias, kEpsilon);
          torch::autograd::backward({sum, y}, {dy, dy});
        },
        {weight, bias, branch_bias});
  }
}

TEST_P(LayerNormTest, TakesAnyAddressAndStride) {
  for (const int64_t width : {24, 768, 1600}) {
    const int64_t rows = 37;
    const auto shifted = [&] {
      return Random({rows * width + 1}).narrow(0, 1, rows * width).view({rows, width});
    };
    const at::Tensor odd = shifted().requires_grad_();
    const at::Tensor odd_dy = shifted();
    const at::Tensor even = odd.detach().clone().requires_grad_();
    const at::Tensor transposed = odd.detach().t().contiguous().requires_grad_();
    const at::Tensor weight = Weight(width);
    const at::Tensor bias = Weight(width);
    const at::Tensor expected = LayerNorm(even, weight, bias, kEpsilon);
    expected.backward(odd_dy.clone());
    for (const at::Tensor& dy : {odd_dy, odd_dy.t().contiguous().t()}) {
      for (const at::Tensor& input : {odd, transposed}) {
        const at::Tensor y =
            LayerNorm(input.size(1) == width ? input : input.t(), weight, bias, kEpsilon);
        EXPECT_TRUE(IsNear(y, expected.to(at::kDouble), tolerance()));
        input.mutable_grad() = at::Tensor();
        y.backward(dy);
        const at::Tensor gradient = input.size(1) == width ? input.grad() : input.grad().t();
        EXPECT_TRUE(IsNear(gradient, even.grad().to(at::kDouble), tolerance()));
      }
    }
    // Weights that are no leaves and lie anywhere.
    const at::Tensor flat = Weight(2 * width + 1);
    LayerNorm(even, flat.narrow(0, 1, width), flat.narrow(0, width + 1, width), kEpsilon)
        .backward(odd_dy);
    EXPECT_EQ(flat.grad()[0].item<float>(), 0);
    EXPECT_TRUE(
        IsNear(flat.grad().narrow(0, width + 1, width), odd_dy.to(at::kDouble).sum(0), 1e-4));
  }
}

TEST_P(LayerNormTest, ABadRowStaysInItsRow) {
  for (const int64_t width : {24, 33, 768, 1600}) {
    const at::Tensor good = Random({20, width});
    const at::Tensor bad = good.clone();
    bad[2][1].fill_(std::numeric_limits<float>::quiet_NaN());
    bad[9][width - 1].fill_(std::numeric_limits<float>::infinity());
    const at::Tensor weight = Weight(width);
    const at::Tensor bias = Weight(width);
    const at::Tensor dy = Random({20, width});
    const auto run = [&](const at::Tensor& values) {
      const at::Tensor x = values.detach().clone().requires_grad_();
      const auto [sum, y] = AddLayerNorm(x, {at::zeros_like(x), {}}, weight, bias, kEpsilon);
      torch::autograd::backward({sum, y}, {dy, dy});
      return std::pair(y.detach(), x.grad());
    };
    const auto [good_y, good_dx] = run(good);
    const auto [bad_y, bad_dx] = run(bad);
    for (int64_t row = 0; row < 20; ++row) {
      const bool is_bad = row == 2 || row == 9;
      EXPECT_EQ(at::equal(good_y[row], bad_y[row]), !is_bad) << row;
      EXPECT_EQ(at::equal(good_dx[row], bad_dx[row]), !is_bad) << row;
      EXPECT_EQ(bad_y[row].isnan().any().item<bool>(), is_bad) << row;
    }
  }
}

TEST_P(LayerNormTest, GivesTheSameBitsEachTime) {
  const at::Tensor x = Random({1000, 768}).requires_grad_();
  const at::Tensor weight = Weight(768);
  const at::Tensor bias = Weight(768);
  const at::Tensor dy = Random({1000, 768});
  const auto run = [&] {
    return torch::autograd::grad({LayerNorm(x, weight, bias, kEpsilon)}, {x, weight, bias}, {dy});
  };
  const auto first = run();
  const auto second = run();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << i;
}

TEST_P(LayerNormTest, TakesNoRowsAndFrozenWeights) {
  const at::Tensor weight = Weight(16);
  const at::Tensor bias = Weight(16);
  const at::Tensor none = at::empty({0, 16}, options()).requires_grad_();
  LayerNorm(none, weight, bias, kEpsilon).backward(at::empty({0, 16}, options()));
  EXPECT_EQ(none.grad().sizes(), none.sizes());
  EXPECT_EQ(weight.grad().abs().sum().item<double>(), 0);
  EXPECT_EQ(bias.grad().abs().sum().item<double>(), 0);

  const at::Tensor x = Random({40, 16}).requires_grad_();
  const at::Tensor dy = Random({40, 16});
  LayerNorm(x, weight.detach(), bias.detach(), kEpsilon).backward(dy);
  const at::Tensor exact = Exact(x);
  ExactLayerNorm(exact, Exact(weight), Exact(bias)).backward(dy.to(at::kDouble));
  EXPECT_TRUE(IsNear(x.grad(), exact.grad(), tolerance()));
}

TEST_P(LayerNormTest, Float64IsAtens) {
  const at::Tensor x = Random({5, 12}).to(at::kDouble);
  const at::Tensor weight = Weight(12);
  const at::Tensor bias = Weight(12);
  const at::Tensor y = LayerNorm(x, weight, bias, kEpsilon);
  EXPECT_TRUE(at::equal(y, ExactLayerNorm(x, weight.to(at::kDouble), bias.to(at::kDouble))));
}

INSTANTIATE_TEST_SUITE_P(, LayerNormTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
