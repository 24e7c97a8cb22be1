// Compares values and gradients with those of PyTorch's layer norm and RMS norm in float64. The twins (the plain ATen
// implementations) are tested on any machine, and the kernels are tested if there is a GPU.

#include "ops/norm/layer_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

constexpr double kEpsilon = 1e-5;

// The shapes of x. In some shapes the last thread block has fewer rows than the others, and in some there are more rows
// than a grid processes at a time. Some widths are not multiples of a pack, some are whole packs that do or do not fill
// a warp or a block, and some are greater than the registers can hold.
const std::vector<std::vector<int64_t>> kShapes = {
    {1, 1},      {7, 1},       {333, 3},    {16384, 3}, {2, 3, 24},  {333, 24},    {1, 772},
    {5, 33},     {9, 256},     {7, 512},    {333, 384}, {100, 384},  {16384, 384}, {11, 776},
    {1000, 768}, {7, 1024},    {41, 1600},  {3, 1601},  {600, 2048}, {7, 4096},    {7, 8192},
    {2, 20000},  {5000, 1600}, {601, 3200}, {600, 8192}};

// The weights of LayerNorm, or of RMSNorm if there is no bias.
struct Norm {
  at::Tensor weight;
  at::Tensor bias;

  std::vector<at::Tensor> weights() const {
    return bias.defined() ? std::vector<at::Tensor>{weight, bias} : std::vector<at::Tensor>{weight};
  }
};

at::Tensor Normal(const at::Tensor& x, const Norm& norm) {
  return norm.bias.defined() ? LayerNorm(x, norm.weight, norm.bias, kEpsilon)
                             : RmsNorm(x, norm.weight, kEpsilon);
}

std::pair<at::Tensor, at::Tensor> AddNormal(const at::Tensor& x, const Branch& branch,
                                            const Norm& norm) {
  return norm.bias.defined() ? AddLayerNorm(x, branch, norm.weight, norm.bias, kEpsilon)
                             : AddRmsNorm(x, branch, norm.weight, kEpsilon);
}

at::Tensor AtensNormal(const at::Tensor& x, const Norm& norm) {
  return norm.bias.defined() ? at::layer_norm(x, {x.size(-1)}, norm.weight, norm.bias, kEpsilon)
                             : at::rms_norm(x, {x.size(-1)}, norm.weight, kEpsilon);
}

at::Tensor Exact(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).requires_grad_();
}
Norm Exact(const Norm& norm) {
  return {Exact(norm.weight), norm.bias.defined() ? Exact(norm.bias) : at::Tensor()};
}

class LayerNormTest : public OpTest {
 protected:
  // Returns the tolerance for results that are rounded to dtype().
  double tolerance() const {
    return dtype() == at::kFloat ? 1e-4 : dtype() == at::kHalf ? 1e-3 : 8e-3;
  }
  // Returns the tolerance for the gradients of weights. It is larger for rows of one value: the rstd of such a row is 1
  // / sqrt(1e-5) = 316, and ATen's CPU kernel subtracts products with rstd, which enlarges rounding errors.
  static double WeightTolerance(int64_t width) { return width == 1 ? 1e-3 : 1e-4; }
  double Tolerance(int64_t width) const { return std::max(tolerance(), WeightTolerance(width)); }
  // Returns whether the test must skip tensors of these sizes, because the float64 reference takes too long on a CPU.
  bool IsForGpus(at::IntArrayRef sizes) const {
    return device() == at::kCPU && c10::multiply_integers(sizes) > 300'000;
  }
  at::Tensor Random(at::IntArrayRef sizes) const { return 2 * at::randn(sizes, options()) + 0.5; }
  at::Tensor Weight(int64_t width) const {
    return (at::randn({width}, options().dtype(at::kFloat)) + 1).requires_grad_();
  }
  // Returns the weights of LayerNorm if `centers` is true, otherwise those of RMSNorm.
  Norm NewNorm(bool centers, int64_t width) const {
    return {Weight(width), centers ? Weight(width) : at::Tensor()};
  }
  static void ExpectGradients(const Norm& norm, const Norm& exact, int64_t width) {
    for (size_t i = 0; i < norm.weights().size(); ++i) {
      const at::Tensor gradient = norm.weights()[i].grad();
      EXPECT_EQ(gradient.scalar_type(), at::kFloat) << i;
      EXPECT_TRUE(IsNear(gradient, exact.weights()[i].grad(), WeightTolerance(width))) << i;
    }
  }
  // The results of a WideNorm that have a gradient in a test.
  struct Used {
    bool sum = false, y = false, wide = false;
  };
  void ExpectIsPyTorchs(at::IntArrayRef sizes, bool centers) const;
  void ExpectIsOfWide(at::IntArrayRef sizes, bool centers, const Used& used, bool adds) const;
  void ExpectAddsTheBranch(at::IntArrayRef sizes, bool centers, bool uses_sum, bool uses_y,
                           bool has_bias) const;
};

void LayerNormTest::ExpectIsPyTorchs(at::IntArrayRef sizes, bool centers) const {
  const int64_t width = sizes.back();
  const at::Tensor x = Random(sizes).requires_grad_();
  const Norm norm = NewNorm(centers, width);
  const at::Tensor dy = Random(sizes);
  const at::Tensor y = Normal(x, norm);
  EXPECT_EQ(y.scalar_type(), dtype());
  y.backward(dy);

  const at::Tensor exact_x = Exact(x);
  const Norm exact = Exact(norm);
  const at::Tensor expected = AtensNormal(exact_x, exact);
  expected.backward(dy.to(at::kDouble));
  EXPECT_TRUE(IsNear(y, expected, Tolerance(width)));
  EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), Tolerance(width)));
  ExpectGradients(norm, exact, width);
}

TEST_P(LayerNormTest, IsPyTorchs) {
  for (const std::vector<int64_t>& sizes : kShapes) {
    if (IsForGpus(sizes)) continue;
    for (const bool centers : {true, false}) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << ", centers " << centers);
      ExpectIsPyTorchs(sizes, centers);
    }
  }
}

void LayerNormTest::ExpectAddsTheBranch(at::IntArrayRef sizes, bool centers, bool uses_sum,
                                        bool uses_y, bool has_bias) const {
  const int64_t width = sizes.back();
  const at::Tensor x = Random(sizes).requires_grad_();
  const Branch branch{Random(sizes).requires_grad_(), has_bias ? Weight(width) : at::Tensor()};
  const Norm norm = NewNorm(centers, width);
  const at::Tensor d_sum = Random(sizes);
  const at::Tensor dy = Random(sizes);
  const auto [sum, y] = AddNormal(x, branch, norm);
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

  const at::Tensor exact_input = Exact(sum);
  const Norm exact = Exact(norm);
  const at::Tensor expected = AtensNormal(exact_input, exact);
  EXPECT_TRUE(IsNear(y, expected, Tolerance(width)));
  at::Tensor d_input = at::zeros_like(exact_input);
  if (uses_y) {
    expected.backward(dy.to(at::kDouble));
    d_input += exact_input.grad();
  }
  if (uses_sum) d_input += d_sum;
  EXPECT_TRUE(IsNear(x.grad(), d_input, Tolerance(width)));
  EXPECT_TRUE(IsNear(branch.values.grad(), d_input, Tolerance(width)));
  if (has_bias) {
    EXPECT_EQ(branch.bias.grad().scalar_type(), at::kFloat);
    // The tolerance is that of dtype(), because the twin and the kernel for unaligned widths add up rounded values.
    EXPECT_TRUE(IsNear(branch.bias.grad(), d_input.flatten(0, -2).sum(0), Tolerance(width)));
  }
  EXPECT_EQ(norm.weight.grad().defined(), uses_y);
  if (uses_y) ExpectGradients(norm, exact, width);
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
      for (const bool centers : {true, false}) {
        SCOPED_TRACE(testing::Message()
                     << at::IntArrayRef(sizes) << ", centers " << centers << ", gradient of sum "
                     << uses_sum << ", y " << uses_y << ", bias " << has_bias);
        ExpectAddsTheBranch(sizes, centers, uses_sum, uses_y, has_bias);
      }
    }
  }
}

// Compares NormOfWide(), whose sum is float32 and whose branch and y have dtype(), with PyTorch in float64.
void LayerNormTest::ExpectIsOfWide(at::IntArrayRef sizes, bool centers, const Used& used,
                                   bool adds) const {
  const int64_t width = sizes.back();
  const at::TensorOptions floats = options(at::kFloat);
  const at::Tensor x = (2 * at::randn(sizes, floats) + 0.5).requires_grad_();
  const Branch branch{adds ? Random(sizes).requires_grad_() : at::Tensor(), {}};
  const Norm norm = NewNorm(centers, width);
  const WideNorm found =
      NormOfWide(x, branch, norm.weight, norm.bias, kEpsilon, dtype(), used.wide);
  const at::Tensor exact_x = Exact(x);
  const at::Tensor exact_branch = adds ? Exact(branch.values) : at::zeros_like(exact_x);
  const Norm exact = Exact(norm);
  const at::Tensor sum = exact_x + exact_branch;
  const at::Tensor y = AtensNormal(sum, exact);
  EXPECT_EQ(found.sum.scalar_type(), at::kFloat);
  EXPECT_TRUE(IsNear(found.sum, sum, 1e-6));
  EXPECT_EQ(found.y.scalar_type(), dtype());
  EXPECT_TRUE(IsNear(found.y, y, Tolerance(width)));
  torch::autograd::variable_list outputs, gradients, exact_outputs, exact_gradients;
  const auto use = [&](const at::Tensor& output, const at::Tensor& expected) {
    outputs.push_back(output), exact_outputs.push_back(expected);
    gradients.push_back(at::randn_like(output));
    exact_gradients.push_back(gradients.back().to(at::kDouble));
  };
  if (used.sum) use(found.sum, sum);
  if (used.y) use(found.y, y);
  if (used.wide) {
    EXPECT_EQ(found.wide.scalar_type(), at::kFloat);
    EXPECT_TRUE(IsNear(found.wide, y, WeightTolerance(width)));
    use(found.wide, y);
  }
  torch::autograd::backward(outputs, gradients);
  torch::autograd::backward(exact_outputs, exact_gradients);
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), WeightTolerance(width)));
  if (adds) {
    EXPECT_EQ(branch.values.grad().scalar_type(), dtype());
    EXPECT_TRUE(IsNear(branch.values.grad(), exact_branch.grad(), tolerance()));
  }
  EXPECT_EQ(norm.weight.grad().defined(), used.y || used.wide);
  if (used.y || used.wide) ExpectGradients(norm, exact, width);
}

TEST_P(LayerNormTest, NormsWideSumsOfNarrowBranches) {
  for (const std::vector<int64_t>& sizes : kShapes) {
    if (dtype() == at::kFloat || IsForGpus(sizes)) continue;
    for (const Used& used : {Used{.sum = true, .y = true},
                             {.sum = true, .y = true, .wide = true},
                             {.y = true, .wide = true},
                             {.y = true},
                             {.wide = true},
                             {.sum = true}}) {
      for (const bool adds : {true, false}) {
        for (const bool centers : {true, false}) {
          SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << ", centers " << centers
                                          << ", branch " << adds << ", gradient of sum " << used.sum
                                          << ", y " << used.y << ", wide " << used.wide);
          ExpectIsOfWide(sizes, centers, used, adds);
        }
      }
    }
  }
}

TEST_P(LayerNormTest, AddsToTheGradientsThatAreThere) {
  for (const int64_t width : {24, 33, 768, 1024}) {
    for (const bool centers : {true, false}) {
      SCOPED_TRACE(testing::Message() << width << ", centers " << centers);
      const at::Tensor x = Random({37, width});
      const at::Tensor dy = Random({37, width});
      const Norm norm = NewNorm(centers, width);
      const at::Tensor branch_bias = Weight(width);
      ExpectAddsToGradients([&] { Normal(x, norm).backward(dy); }, norm.weights());
      std::vector<at::Tensor> weights = norm.weights();
      weights.push_back(branch_bias);
      ExpectAddsToGradients(
          [&] {
            const auto [sum, y] = AddNormal(x, {x, branch_bias}, norm);
            torch::autograd::backward({sum, y}, {dy, dy});
          },
          weights);
    }
  }
}

TEST_P(LayerNormTest, AnyWeightMayBeTheOnlyOneThatLearns) {
  for (const int64_t width : {16, 33}) {
    for (const bool centers : {true, false}) {
      const at::Tensor x = Random({40, width});
      const at::Tensor dy = Random({40, width});
      // Runs forward and backward. `weights` are {weight, branch's bias}, or, for LayerNorm, {weight, branch's bias,
      // bias}.
      const auto run = [&](const std::vector<at::Tensor>& weights) {
        const Norm norm{weights[0], centers ? weights[2] : at::Tensor()};
        AddNormal(x, {x, weights[1]}, norm).second.backward(dy);
      };
      std::vector<at::Tensor> all = {Weight(width), Weight(width)};
      if (centers) all.push_back(Weight(width));
      run(all);
      for (size_t learns = 0; learns < all.size(); ++learns) {
        SCOPED_TRACE(testing::Message() << width << ", centers " << centers << ", " << learns);
        std::vector<at::Tensor> weights;
        for (const at::Tensor& weight : all) weights.push_back(weight.detach().clone());
        weights[learns].requires_grad_();
        run(weights);
        for (size_t i = 0; i < all.size(); ++i) {
          ASSERT_EQ(weights[i].grad().defined(), i == learns) << i;
        }
        EXPECT_TRUE(IsNear(weights[learns].grad(), all[learns].grad().to(at::kDouble), 1e-5));
      }
    }
  }
}

TEST_P(LayerNormTest, TakesAnyAddressAndStride) {
  for (const int64_t width : {24, 768, 1600}) {
    for (const bool centers : {true, false}) {
      SCOPED_TRACE(testing::Message() << width << ", centers " << centers);
      const int64_t rows = 37;
      const auto shifted = [&] {
        return Random({rows * width + 1}).narrow(0, 1, rows * width).view({rows, width});
      };
      const at::Tensor odd = shifted().requires_grad_();
      const at::Tensor odd_dy = shifted();
      const at::Tensor even = odd.detach().clone().requires_grad_();
      const at::Tensor transposed = odd.detach().t().contiguous().requires_grad_();
      const Norm norm = NewNorm(centers, width);
      const at::Tensor expected = Normal(even, norm);
      expected.backward(odd_dy.clone());
      const at::Tensor d_weight = norm.weight.grad().to(at::kDouble);
      for (const at::Tensor& dy : {odd_dy, odd_dy.t().contiguous().t()}) {
        for (const at::Tensor& input : {odd, transposed}) {
          const at::Tensor y = Normal(input.size(1) == width ? input : input.t(), norm);
          EXPECT_TRUE(IsNear(y, expected.to(at::kDouble), tolerance()));
          input.mutable_grad() = at::Tensor();
          y.backward(dy);
          const at::Tensor gradient = input.size(1) == width ? input.grad() : input.grad().t();
          EXPECT_TRUE(IsNear(gradient, even.grad().to(at::kDouble), tolerance()));
        }
      }
      // These weights are not leaf tensors, and begin at addresses that are not multiples of 16 bytes.
      const at::Tensor flat = Weight(2 * width + 1);
      const at::Tensor flat_bias = flat.narrow(0, width + 1, width);
      Normal(even, {flat.narrow(0, 1, width), centers ? flat_bias : at::Tensor()}).backward(odd_dy);
      EXPECT_EQ(flat.grad()[0].item<float>(), 0);
      EXPECT_TRUE(IsNear(flat.grad().narrow(0, 1, width), d_weight, 1e-4));
      if (!centers) continue;
      EXPECT_TRUE(
          IsNear(flat.grad().narrow(0, width + 1, width), odd_dy.to(at::kDouble).sum(0), 1e-4));
    }
  }
}

TEST_P(LayerNormTest, ABadRowStaysInItsRow) {
  for (const int64_t width : {24, 33, 768, 1600}) {
    for (const bool centers : {true, false}) {
      SCOPED_TRACE(testing::Message() << width << ", centers " << centers);
      const at::Tensor good = Random({20, width});
      const at::Tensor bad = good.clone();
      bad[2][1].fill_(std::numeric_limits<float>::quiet_NaN());
      bad[9][width - 1].fill_(std::numeric_limits<float>::infinity());
      const Norm norm = NewNorm(centers, width);
      const at::Tensor dy = Random({20, width});
      const auto run = [&](const at::Tensor& values) {
        const at::Tensor x = values.detach().clone().requires_grad_();
        const auto [sum, y] = AddNormal(x, {at::zeros_like(x), {}}, norm);
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
}

TEST_P(LayerNormTest, GivesTheSameBitsEachTime) {
  for (const bool centers : {true, false}) {
    const at::Tensor x = Random({1000, 768}).requires_grad_();
    const Norm norm = NewNorm(centers, 768);
    std::vector<at::Tensor> inputs = norm.weights();
    inputs.push_back(x);
    const at::Tensor dy = Random({1000, 768});
    const auto run = [&] { return torch::autograd::grad({Normal(x, norm)}, inputs, {dy}); };
    const auto first = run();
    const auto second = run();
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(at::equal(first[i], second[i])) << "centers " << centers << ", " << i;
    }
  }
}

TEST_P(LayerNormTest, TakesNoRowsAndFrozenWeights) {
  for (const bool centers : {true, false}) {
    SCOPED_TRACE(testing::Message() << "centers " << centers);
    const Norm norm = NewNorm(centers, 16);
    const at::Tensor none = at::empty({0, 16}, options()).requires_grad_();
    Normal(none, norm).backward(at::empty({0, 16}, options()));
    EXPECT_EQ(none.grad().sizes(), none.sizes());
    for (const at::Tensor& weight : norm.weights()) {
      EXPECT_EQ(weight.grad().abs().sum().item<double>(), 0);
    }

    const at::Tensor x = Random({40, 16}).requires_grad_();
    const at::Tensor dy = Random({40, 16});
    Normal(x, {norm.weight.detach(), centers ? norm.bias.detach() : at::Tensor()}).backward(dy);
    const at::Tensor exact = Exact(x);
    AtensNormal(exact, Exact(norm)).backward(dy.to(at::kDouble));
    EXPECT_TRUE(IsNear(x.grad(), exact.grad(), tolerance()));
  }
}

TEST_P(LayerNormTest, Float64IsAtens) {
  for (const bool centers : {true, false}) {
    const at::Tensor x = Random({5, 12}).to(at::kDouble);
    const Norm norm = NewNorm(centers, 12);
    EXPECT_TRUE(at::equal(Normal(x, norm), AtensNormal(x, Exact(norm)))) << "centers " << centers;
  }
}

INSTANTIATE_TEST_SUITE_P(, LayerNormTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
