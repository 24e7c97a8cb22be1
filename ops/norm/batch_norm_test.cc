// Compares values, gradients and running statistics with those of PyTorch's batch norm in float64. The twin (the plain
// ATen implementation) is tested on any machine, and the kernels are tested if there is a GPU.

#include "ops/norm/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/norm/testing/norm_op_test.h"
#include "ops/product/activation_twin.h"

namespace lockstep::ops {
namespace {

using torch::autograd::variable_list;

// The shapes of x. In some shapes the last thread block has fewer rows than the others, and in some there are more rows
// than a grid processes at a time. Some numbers of channels are not multiples of a pack, and the others fill less than
// a block, one block, or more. Some images have one pixel, and some an odd number of pixels.
const std::vector<std::vector<int64_t>> kShapes = {
    {2, 3},          {7, 8},       {333, 24},     {64, 512},        {9, 4096},
    {20000, 8},      {5, 776},     {2, 16, 1, 1}, {3, 24, 5, 7},    {2, 64, 33, 1},
    {2, 2048, 7, 7}, {1, 3, 9, 9}, {4, 40, 3, 3}, {8, 256, 14, 14}, {16, 64, 56, 56}};

struct Case {
  Activation activation;
  bool adds;
};
constexpr Case kCases[] = {{Activation::kNone, false}, {Activation::kRelu, false},
                           {Activation::kRelu, true},  {Activation::kNone, true},
                           {Activation::kSilu, false}, {Activation::kHardswish, false},
                           {Activation::kSilu, true}};

// The shapes of batches that ranks share.
const std::vector<std::vector<int64_t>> kSharedShapes = {
    {7, 8},        {333, 24},     {9, 4096},        {40, 3},         {6, 5, 7},
    {3, 24, 5, 7}, {4, 40, 3, 3}, {8, 256, 14, 14}, {16, 64, 56, 56}};

class BatchNormTest : public NormOpTest {
 protected:
  // Returns true for the values of `sum` that are not close to a kink of the activation. The tests give the other
  // values no gradient, because rounding decides on which side of the kink they lie.
  at::Tensor IsFarFromKinks(const at::Tensor& sum, Activation activation) const {
    const double kink = activation == Activation::kHardswish ? 3 : 0;
    return (sum.abs() - kink).abs() > 4 * tolerance();
  }
  // Returns the tolerance for the gradients of weight and bias. It is larger with a smooth activation if the twin runs,
  // because the twin rounds the sum and the sum's gradient.
  double SumToleranceOf(Activation activation, bool adds, const at::Tensor& x,
                        const ChannelNorm& norm) const {
    const bool is_smooth = activation == Activation::kSilu || activation == Activation::kHardswish;
    const bool is_twin = adds || !HasBatchNormKernels(x, norm);
    return is_smooth && is_twin ? std::max(tolerance(), SumTolerance()) : SumTolerance();
  }
};

TEST_P(BatchNormTest, IsPyTorchs) {
  for (const std::vector<int64_t>& sizes : kShapes) {
    for (const auto& [activation, adds] : kCases) {
      if (IsForGpus(sizes)) continue;
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << ", activation "
                                      << static_cast<int>(activation) << ", adds " << adds);
      const at::Tensor x = Random(sizes).requires_grad_();
      const ChannelNorm norm = Norm(sizes[1]);
      const at::Tensor residual = adds ? Random(sizes).requires_grad_() : at::Tensor();
      const Exactly exactly(x, norm, residual);
      const at::Tensor sum = exactly.Sum();
      const at::Tensor expected = ActivationTwin(sum, activation);
      const at::Tensor dy = Random(sizes) * IsFarFromKinks(sum, activation).to(dtype());
      expected.backward(dy.to(at::kDouble));

      const at::Tensor y = BatchNorm(x, norm, activation, residual);
      EXPECT_EQ(y.scalar_type(), dtype());
      y.backward(dy);
      EXPECT_TRUE(IsNear(y, expected, tolerance()));
      EXPECT_TRUE(IsNear(x.grad(), exactly.x.grad(), tolerance()));
      const double sums = SumToleranceOf(activation, adds, x, norm);
      EXPECT_TRUE(IsNear(norm.weight.grad(), exactly.norm.weight.grad(), sums));
      EXPECT_TRUE(IsNear(norm.bias.grad(), exactly.norm.bias.grad(), sums));
      EXPECT_TRUE(IsNear(norm.running_mean, exactly.norm.running_mean, 1e-5));
      EXPECT_TRUE(IsNear(norm.running_var, exactly.norm.running_var, 1e-5));
      EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
      EXPECT_FALSE(norm.counters.any().item<bool>());
      if (!adds) continue;
      EXPECT_TRUE(IsNear(residual.grad(), exactly.residual.grad(), tolerance()));
    }
  }
}

TEST_P(BatchNormTest, JoinIsPyTorchs) {
  for (const std::vector<int64_t>& sizes : kShapes) {
    if (IsForGpus(sizes)) continue;
    SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes));
    const at::Tensor a = Random(sizes).requires_grad_();
    const at::Tensor b = Random(sizes).requires_grad_();
    const ChannelNorm norm_a = Norm(sizes[1]);
    const ChannelNorm norm_b = Norm(sizes[1]);
    const Exactly exactly_a(a, norm_a);
    const Exactly exactly_b(b, norm_b);
    const at::Tensor sum = exactly_a.Sum() + exactly_b.Sum();
    const at::Tensor expected = sum.relu();
    // Sums close to 0 get no gradient: the twin rounds the result of each norm, so rounding decides whether ReLU lets
    // such sums pass.
    const double close = 8 * tolerance();
    const at::Tensor dy = Random(sizes) * (sum.abs() > close).to(dtype());
    expected.backward(dy.to(at::kDouble));

    const at::Tensor y = JoinBatchNorms(a, norm_a, b, norm_b);
    EXPECT_EQ(y.scalar_type(), dtype());
    y.backward(dy);
    EXPECT_TRUE(IsNear(y, expected, tolerance()));
    for (const auto& [x, norm, exactly] :
         {std::tie(a, norm_a, exactly_a), std::tie(b, norm_b, exactly_b)}) {
      EXPECT_TRUE(IsNear(x.grad(), exactly.x.grad(), tolerance()));
      EXPECT_TRUE(IsNear(norm.weight.grad(), exactly.norm.weight.grad(), SumTolerance()));
      EXPECT_TRUE(IsNear(norm.bias.grad(), exactly.norm.bias.grad(), SumTolerance()));
      EXPECT_TRUE(IsNear(norm.running_mean, exactly.norm.running_mean, 1e-5));
      EXPECT_TRUE(IsNear(norm.running_var, exactly.norm.running_var, 1e-5));
      EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
      EXPECT_FALSE(norm.counters.any().item<bool>());
    }
    // Both biases have the same gradient, but each gradient has memory of its own, so that it may be changed in place.
    EXPECT_NE(norm_a.bias.grad().const_data_ptr(), norm_b.bias.grad().const_data_ptr());
  }
}

TEST_P(BatchNormTest, RanksThatShareABatchGiveTheWholes) {
  for (const std::vector<int64_t>& sizes : kSharedShapes) {
    for (const auto& [activation, adds] : kCases) {
      if (IsForGpus(sizes)) continue;
      const at::Tensor x = Random(sizes);
      const ChannelNorm norm = Norm(sizes[1]);
      const at::Tensor residual = adds ? Random(sizes) : at::Tensor();
      const Exactly exactly(x, norm, residual);
      const at::Tensor sum = exactly.Sum();
      const at::Tensor expected = ActivationTwin(sum, activation);
      const at::Tensor dy = Random(sizes) * IsFarFromKinks(sum, activation).to(dtype());
      expected.backward(dy.to(at::kDouble));
      variable_list inputs = {x};
      variable_list gradients = {exactly.x.grad()};
      if (adds) {
        inputs.push_back(residual);
        gradients.push_back(exactly.residual.grad());
      }
      for (const std::vector<int64_t>& rows : Shares(sizes[0])) {
        SCOPED_TRACE(testing::Message()
                     << at::IntArrayRef(sizes) << " in " << at::IntArrayRef(rows) << ", activation "
                     << static_cast<int>(activation) << ", adds " << adds);
        const auto parts = InRanks(
            rows,
            [&, activation = activation, adds = adds](const variable_list& leaves,
                                                      const std::vector<ChannelNorm>& norms) {
              return BatchNorm(leaves[0], norms[0], activation, adds ? leaves[1] : at::Tensor());
            },
            inputs, {norm}, dy);
        ExpectWhole(parts, expected, gradients, {exactly.norm}, tolerance(),
                    SumToleranceOf(activation, adds, x, norm));
      }
    }
  }
}

TEST_P(BatchNormTest, RanksThatShareBatchesJoinThem) {
  for (const std::vector<int64_t>& sizes : kSharedShapes) {
    if (IsForGpus(sizes)) continue;
    const at::Tensor a = Random(sizes);
    const at::Tensor b = Random(sizes);
    const ChannelNorm norm_a = Norm(sizes[1]);
    const ChannelNorm norm_b = Norm(sizes[1]);
    const Exactly exactly_a(a, norm_a);
    const Exactly exactly_b(b, norm_b);
    const at::Tensor sum = exactly_a.Sum() + exactly_b.Sum();
    const at::Tensor expected = sum.relu();
    // The result of norm_b is rounded, so sums close to 0 get no gradient.
    const at::Tensor dy = Random(sizes) * (sum.abs() > 8 * tolerance()).to(dtype());
    expected.backward(dy.to(at::kDouble));
    for (const std::vector<int64_t>& rows : Shares(sizes[0])) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << " in " << at::IntArrayRef(rows));
      const auto parts = InRanks(
          rows,
          [](const variable_list& leaves, const std::vector<ChannelNorm>& norms) {
            return JoinBatchNorms(leaves[0], norms[0], leaves[1], norms[1]);
          },
          {a, b}, {norm_a, norm_b}, dy);
      ExpectWhole(parts, expected, {exactly_a.x.grad(), exactly_b.x.grad()},
                  {exactly_a.norm, exactly_b.norm}, tolerance(), SumTolerance());
    }
  }
}

// Checks that a batch of one row or of no rows, which has no unbiased variance, does not change the running statistics.
TEST_P(BatchNormTest, RanksMayShareOneRowOrNone) {
  const ChannelNorm norm = Norm(16);
  for (const int64_t rows : {1, 0}) {
    SCOPED_TRACE(rows);
    const at::Tensor x = Random({rows, 16});
    for (const PartResults& part : InRanks(
             {rows, 0},
             [](const variable_list& leaves, const std::vector<ChannelNorm>& norms) {
               return BatchNorm(leaves[0], norms[0], Activation::kNone);
             },
             {x}, {norm}, at::ones_like(x))) {
      const int64_t own = part.y.size(0);
      const at::Tensor expected = norm.bias.detach().expand({own, 16});
      EXPECT_TRUE(at::allclose(part.y.to(at::kFloat), expected, tolerance(), tolerance()));
      EXPECT_EQ(part.gradients[0].abs().sum().item<double>(), 0);
      EXPECT_TRUE(at::equal(part.norms[0].bias.grad(), at::full_like(norm.bias, own)));
      EXPECT_TRUE(at::equal(part.norms[0].running_mean, norm.running_mean));
      EXPECT_TRUE(at::equal(part.norms[0].running_var, norm.running_var));
      EXPECT_EQ(part.norms[0].num_batches_tracked.item<int64_t>(), 1);
    }
  }
}

// Checks that the result does not depend on running statistics: the second forward of activation checkpointing passes
// none, because the first forward has already updated the running statistics.
TEST_P(BatchNormTest, RanksShareABatchThatNothingFollows) {
  const at::Tensor x = Random({40, 16});
  ChannelNorm norm = Norm(16);
  RankInTurn ranks({{}}, 0);
  norm.ranks = &ranks;
  const at::Tensor y = BatchNorm(x, norm, Activation::kRelu).detach();
  norm.running_mean = at::Tensor();
  norm.running_var = at::Tensor();
  norm.num_batches_tracked = at::Tensor();
  EXPECT_TRUE(at::equal(BatchNorm(x, norm, Activation::kRelu).detach(), y));
}

TEST_P(BatchNormTest, IsExactFarFromZero) {
  const at::Tensor x =
      (at::randn({4096, 64}, options(at::kFloat)) + 50).to(dtype()).requires_grad_();
  const ChannelNorm norm = Norm(64);
  const Exactly exactly(x, norm);
  const at::Tensor expected = exactly.Sum();
  const at::Tensor dy = Random({4096, 64});
  expected.backward(dy.to(at::kDouble));
  const at::Tensor y = BatchNorm(x, norm, Activation::kNone);
  y.backward(dy);
  EXPECT_TRUE(IsNear(y, expected, tolerance()));
  EXPECT_TRUE(IsNear(x.grad(), exactly.x.grad(), tolerance()));
  EXPECT_TRUE(IsNear(norm.weight.grad(), exactly.norm.weight.grad(), 1e-3));
  EXPECT_TRUE(IsNear(norm.running_var, exactly.norm.running_var, 1e-4));
}

TEST_P(BatchNormTest, TakesAnyAddressAndStride) {
  const std::vector<int64_t> sizes = {6, 16, 5, 4};
  const int64_t count = c10::multiply_integers(sizes);
  const auto shifted = [&] {
    const at::Tensor flat = Random({count + 1}).narrow(0, 1, count);
    return flat.view({6, 5, 4, 16}).permute({0, 3, 1, 2});
  };
  const at::Tensor x = shifted().requires_grad_();
  const at::Tensor dy = shifted();
  const at::Tensor residual = shifted();
  const auto run = [&](const at::Tensor& values, const at::Tensor& gradient,
                       const at::Tensor& other) {
    const at::Tensor leaf = values.detach().requires_grad_();
    ChannelNorm norm = Norm(16);
    norm.weight = at::ones({16}, options(at::kFloat)).requires_grad_();
    norm.bias = at::zeros({16}, options(at::kFloat)).requires_grad_();
    const at::Tensor y = BatchNorm(leaf, norm, Activation::kRelu, other);
    y.backward(gradient);
    return std::vector<at::Tensor>{y.detach(), leaf.grad(), norm.weight.grad()};
  };
  const auto last = [](const at::Tensor& values) {
    return values.clone(at::MemoryFormat::ChannelsLast);
  };
  const auto first = [](const at::Tensor& values) {
    return values.clone(at::MemoryFormat::Contiguous);
  };
  const auto expected = run(last(x), last(dy), {});
  for (const auto& found :
       {run(x, dy, {}), run(first(x), first(dy), {}), run(last(x), first(dy), {}),
        run(last(x), dy, {}), run(x, last(dy), {})}) {
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(IsNear(found[i], expected[i].to(at::kDouble), tolerance())) << i;
    }
  }
  const auto added = run(last(x), last(dy), last(residual));
  for (const auto& found : {run(x, dy, residual), run(last(x), dy, residual)}) {
    EXPECT_TRUE(IsNear(found[0], added[0].to(at::kDouble), tolerance()));
  }
}

TEST_P(BatchNormTest, JoinTakesAnyAddressAndStride) {
  const std::vector<int64_t> sizes = {6, 16, 5, 4};
  const int64_t count = c10::multiply_integers(sizes);
  const ChannelNorm norm_a = Norm(16);
  const ChannelNorm norm_b = Norm(16);
  const auto run = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& dy) {
    const at::Tensor x_a = a.detach().requires_grad_();
    const at::Tensor x_b = b.detach().requires_grad_();
    const at::Tensor y = JoinBatchNorms(x_a, norm_a, x_b, norm_b);
    variable_list results =
        torch::autograd::grad({y}, {x_a, x_b, norm_a.weight, norm_b.weight}, {dy});
    results.push_back(y.detach());
    return results;
  };
  const at::Tensor a = Random(sizes);
  const at::Tensor b = Random(sizes);
  // Sums get no gradient if they are so close to 0 that rounding decides whether ReLU lets them pass.
  const at::Tensor sum = Exactly(a, norm_a).Sum() + Exactly(b, norm_b).Sum();
  const at::Tensor dy = Random(sizes) * (sum.detach().abs() > 8 * tolerance()).to(dtype());
  const auto shifted = [&](const at::Tensor& values) {
    const at::Tensor result =
        at::empty({count + 1}, options()).narrow(0, 1, count).view({6, 5, 4, 16});
    return result.permute({0, 3, 1, 2}).copy_(values);
  };
  const auto first = [](const at::Tensor& values) {
    return values.clone(at::MemoryFormat::Contiguous);
  };
  const variable_list expected = run(a, b, dy);
  for (const variable_list& found :
       {run(shifted(a), b, dy), run(a, shifted(b), dy), run(a, b, shifted(dy)),
        run(a, b, first(dy)), run(first(a), b, dy), run(a, first(b), dy),
        run(first(a), first(b), first(dy))}) {
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(IsNear(found[i], expected[i].to(at::kDouble), tolerance())) << i;
    }
  }
}

TEST_P(BatchNormTest, ABadChannelStaysInItsChannel) {
  const at::Tensor good = Random({6, 24, 5, 5});
  const at::Tensor bad = good.clone();
  bad[2][1][0][3].fill_(std::numeric_limits<float>::quiet_NaN());
  bad[5][17][4][4].fill_(std::numeric_limits<float>::infinity());
  const ChannelNorm norm = Norm(24);
  const at::Tensor dy = Random({6, 24, 5, 5});
  const auto run = [&](const at::Tensor& values) {
    const at::Tensor x = values.detach().clone().requires_grad_();
    const at::Tensor y = BatchNorm(x, norm, Activation::kRelu);
    y.backward(dy);
    return std::pair(y.detach(), x.grad());
  };
  const auto [good_y, good_dx] = run(good);
  const auto [bad_y, bad_dx] = run(bad);
  for (int64_t channel = 0; channel < 24; ++channel) {
    const bool is_bad = channel == 1 || channel == 17;
    EXPECT_EQ(at::equal(good_y.select(1, channel), bad_y.select(1, channel)), !is_bad) << channel;
    EXPECT_EQ(at::equal(good_dx.select(1, channel), bad_dx.select(1, channel)), !is_bad) << channel;
    EXPECT_EQ(bad_y.select(1, channel).isnan().any().item<bool>(), is_bad) << channel;
  }
}

TEST_P(BatchNormTest, ABadChannelOfEitherStaysInItsChannelOfTheJoin) {
  const at::Tensor good_a = Random({6, 24, 5, 5});
  const at::Tensor good_b = Random({6, 24, 5, 5});
  const at::Tensor bad_a = good_a.clone();
  const at::Tensor bad_b = good_b.clone();
  bad_a[2][1][0][3].fill_(std::numeric_limits<float>::quiet_NaN());
  bad_b[5][17][4][4].fill_(std::numeric_limits<float>::infinity());
  const ChannelNorm norm_a = Norm(24);
  const ChannelNorm norm_b = Norm(24);
  const at::Tensor dy = Random({6, 24, 5, 5});
  const auto run = [&](const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor x_a = a.detach().clone().requires_grad_();
    const at::Tensor x_b = b.detach().clone().requires_grad_();
    const at::Tensor y = JoinBatchNorms(x_a, norm_a, x_b, norm_b);
    y.backward(dy);
    return std::vector<at::Tensor>{y.detach(), x_a.grad(), x_b.grad()};
  };
  const auto good = run(good_a, good_b);
  const auto bad = run(bad_a, bad_b);
  for (int64_t channel = 0; channel < 24; ++channel) {
    const bool is_bad = channel == 1 || channel == 17;
    for (size_t i = 0; i < good.size(); ++i) {
      EXPECT_EQ(at::equal(good[i].select(1, channel), bad[i].select(1, channel)), !is_bad)
          << i << " " << channel;
    }
    EXPECT_EQ(bad[0].select(1, channel).isnan().all().item<bool>(), is_bad) << channel;
  }
}

TEST_P(BatchNormTest, AddsToTheGradientsThatAreThere) {
  const at::Tensor x = Random({4, 24, 5, 7});
  const at::Tensor other = Random({4, 24, 5, 7});
  const at::Tensor dy = Random({4, 24, 5, 7});
  const ChannelNorm norm = Norm(24);
  const ChannelNorm other_norm = Norm(24);
  for (const Case& c : kCases) {
    const at::Tensor residual = c.adds ? other : at::Tensor();
    ExpectAddsToGradients([&] { BatchNorm(x, norm, c.activation, residual).backward(dy); },
                          {norm.weight, norm.bias});
  }
  ExpectAddsToGradients([&] { JoinBatchNorms(x, norm, other, other_norm).backward(dy); },
                        {norm.weight, norm.bias, other_norm.weight, other_norm.bias});
  RankInTurn ranks({{}}, 0);
  ChannelNorm shared = norm;
  shared.ranks = &ranks;
  ExpectAddsToGradients([&] { BatchNorm(x, shared, Activation::kRelu, other).backward(dy); },
                        {norm.weight, norm.bias});
}

TEST_P(BatchNormTest, GivesTheSameBitsEachTime) {
  const at::Tensor x = Random({16, 64, 28, 28}).requires_grad_();
  const at::Tensor residual = Random({16, 64, 28, 28}).requires_grad_();
  ChannelNorm norm = Norm(64);
  const ChannelNorm other = Norm(64);
  const at::Tensor dy = Random({16, 64, 28, 28});
  const auto run = [&] {
    variable_list results = torch::autograd::grad({BatchNorm(x, norm, Activation::kRelu, residual)},
                                                  {x, norm.weight, norm.bias, residual}, {dy});
    const variable_list joined = torch::autograd::grad(
        {JoinBatchNorms(x, norm, residual, other)},
        {x, norm.weight, norm.bias, residual, other.weight, other.bias}, {dy});
    results.insert(results.end(), joined.begin(), joined.end());
    return results;
  };
  const auto first = run();
  const auto second = run();
  norm.counters = at::Tensor();
  const auto with_its_own_counters = run();
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(at::equal(first[i], second[i])) << i;
    EXPECT_TRUE(at::equal(first[i], with_its_own_counters[i])) << i;
  }
}

TEST_P(BatchNormTest, WritesOverAGradientThatNobodyElseHas) {
  const at::Tensor x = Random({8, 16, 14, 14}).requires_grad_();
  const at::Tensor other = Random({8, 16, 14, 14}).requires_grad_();
  const ChannelNorm norm = Norm(16);
  const ChannelNorm norm_of_other = Norm(16);
  const std::vector<std::pair<const char*, std::function<at::Tensor()>>> operations = {
      {"norm", [&] { return BatchNorm(x, norm, Activation::kNone); }},
      {"ReLU", [&] { return BatchNorm(x, norm, Activation::kRelu); }},
      {"residual", [&] { return BatchNorm(x, norm, Activation::kRelu, other); }},
      {"constant", [&] { return BatchNorm(x, norm, Activation::kRelu, other.detach()); }},
      {"join", [&] { return JoinBatchNorms(x, norm, other, norm_of_other); }}};
  for (const auto& [name, operation] : operations) {
    SCOPED_TRACE(name);
    const at::Tensor dy = Random({8, 16, 14, 14});
    const auto gradients = [&](const at::Tensor& y) {
      x.mutable_grad() = at::Tensor();
      other.mutable_grad() = at::Tensor();
      y.backward(dy);
      return variable_list{x.grad(), other.grad()};
    };
    const at::Tensor before = dy.clone();
    const variable_list expected = gradients(operation());
    EXPECT_TRUE(at::equal(dy, before));

    const at::Tensor y = operation();
    const void* memory = nullptr;
    y.register_hook([&](const at::Tensor& gradient) { memory = gradient.const_data_ptr(); });
    const variable_list found = gradients(y * 1);
    bool is_written_over = false;
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].defined(), expected[i].defined());
      if (!found[i].defined()) continue;
      EXPECT_TRUE(at::equal(found[i], expected[i]));
      is_written_over |= found[i].const_data_ptr() == memory;
    }
    EXPECT_NE(memory, dy.const_data_ptr());
    if (device() == at::kCUDA) {
      EXPECT_TRUE(is_written_over);
    }
  }
}

// Checks that the kernels refuse running statistics of a wrong size, and running_var without running_mean.
TEST_P(BatchNormTest, TheKernelsTakeNoOtherStatistics) {
  const at::Tensor x = Random({40, 16});
  ChannelNorm norm = Norm(16);
  EXPECT_EQ(HasBatchNormKernels(x, norm), device() == at::kCUDA);
  norm.running_mean = norm.running_mean.narrow(0, 0, 8);
  EXPECT_FALSE(HasBatchNormKernels(x, norm));
  EXPECT_THROW(BatchNorm(x, norm, Activation::kNone), c10::Error);
  norm.running_mean = at::Tensor();
  EXPECT_FALSE(HasBatchNormKernels(x, norm));
}

TEST_P(BatchNormTest, KnowsNoOtherActivation) {
  const at::Tensor x = Random({40, 16});
  EXPECT_THROW(BatchNorm(x, Norm(16), Activation::kGelu), c10::Error);
  EXPECT_THROW(AddAndActivate(x, Activation::kGelu, {}), c10::Error);
}

TEST_P(BatchNormTest, CountsBatches) {
  ChannelNorm norm = Norm(16);
  const ChannelNorm other = Norm(16);
  const at::Tensor x = Random({40, 16});
  BatchNorm(x, norm, Activation::kRelu);
  BatchNorm(x, norm, Activation::kRelu, x);
  JoinBatchNorms(x, norm, x, other);
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 3);
  EXPECT_EQ(other.num_batches_tracked.item<int64_t>(), 1);
  // A batch of one row increments num_batches_tracked, although the running statistics must be undefined for such a
  // batch.
  norm.running_mean = at::Tensor();
  norm.running_var = at::Tensor();
  BatchNorm(Random({1, 16}), norm, Activation::kNone);
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 4);
  const at::Tensor count = norm.num_batches_tracked;
  norm.num_batches_tracked = at::Tensor();
  BatchNorm(x, norm, Activation::kRelu);
  EXPECT_EQ(count.item<int64_t>(), 4);
}

TEST_P(BatchNormTest, TakesOneRowFrozenWeightsAndNoGradient) {
  ChannelNorm norm = Norm(16);
  norm.running_mean = at::Tensor();
  norm.running_var = at::Tensor();
  const at::Tensor one = Random({1, 16}).requires_grad_();
  const at::Tensor y = BatchNorm(one, norm, Activation::kNone);
  y.backward(at::ones_like(y));
  EXPECT_TRUE(IsNear(y, norm.bias.detach().to(at::kDouble).view({1, 16}), tolerance()));
  EXPECT_EQ(one.grad().abs().sum().item<double>(), 0);

  const at::Tensor x = Random({40, 16}).requires_grad_();
  const at::Tensor residual = Random({40, 16});
  const at::Tensor dy = Random({40, 16});
  ChannelNorm frozen = norm;
  frozen.weight = norm.weight.detach();
  frozen.bias = norm.bias.detach();
  const at::Tensor all =
      torch::autograd::grad({BatchNorm(x, norm, Activation::kRelu, residual)}, {x}, {dy})[0];
  const at::Tensor alone =
      torch::autograd::grad({BatchNorm(x, frozen, Activation::kRelu, residual)}, {x}, {dy})[0];
  EXPECT_TRUE(at::equal(all, alone));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(BatchNorm(x, norm, Activation::kRelu, residual).requires_grad());
}

TEST_P(BatchNormTest, JoinTakesOneRowFrozenWeightsAndNoGradient) {
  ChannelNorm norm_a = Norm(16);
  ChannelNorm norm_b = Norm(16);
  for (ChannelNorm* norm : {&norm_a, &norm_b}) {
    norm->running_mean = at::Tensor();
    norm->running_var = at::Tensor();
  }
  const at::Tensor one_a = Random({1, 16}).requires_grad_();
  const at::Tensor one_b = Random({1, 16}).requires_grad_();
  const at::Tensor y = JoinBatchNorms(one_a, norm_a, one_b, norm_b);
  y.backward(at::ones_like(y));
  const at::Tensor biases = (norm_a.bias + norm_b.bias).detach().to(at::kDouble).view({1, 16});
  EXPECT_TRUE(IsNear(y, biases.relu(), tolerance()));
  EXPECT_EQ(one_a.grad().abs().sum().item<double>(), 0);
  EXPECT_EQ(one_b.grad().abs().sum().item<double>(), 0);

  const at::Tensor a = Random({40, 16}).requires_grad_();
  const at::Tensor b = Random({40, 16}).requires_grad_();
  const at::Tensor dy = Random({40, 16});
  ChannelNorm frozen = norm_b;
  frozen.weight = norm_b.weight.detach();
  frozen.bias = norm_b.bias.detach();
  const auto all = torch::autograd::grad({JoinBatchNorms(a, norm_a, b, norm_b)}, {a, b}, {dy});
  const auto alone = torch::autograd::grad({JoinBatchNorms(a, norm_a, b, frozen)}, {a, b}, {dy});
  const auto half =
      torch::autograd::grad({JoinBatchNorms(a, norm_a, b.detach(), frozen)}, {a}, {dy});
  EXPECT_TRUE(at::equal(all[0], alone[0]));
  EXPECT_TRUE(at::equal(all[1], alone[1]));
  EXPECT_TRUE(at::equal(all[0], half[0]));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(JoinBatchNorms(a, norm_a, b, norm_b).requires_grad());
}

TEST_P(BatchNormTest, Float64IsAtens) {
  const at::Tensor x = Random({5, 12}).to(at::kDouble);
  const ChannelNorm norm = Norm(12);
  const Exactly exactly(x, norm);
  EXPECT_TRUE(at::equal(BatchNorm(x, exactly.norm, Activation::kNone), exactly.Sum()));
  EXPECT_TRUE(at::equal(JoinBatchNorms(x, exactly.norm, x, exactly.norm),
                        (exactly.Sum() + exactly.Sum()).relu()));
}

INSTANTIATE_TEST_SUITE_P(, BatchNormTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
