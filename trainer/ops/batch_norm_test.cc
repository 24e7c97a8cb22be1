// Values, gradients and running statistics against PyTorch's batch norm in float64: the twin
// everywhere, the kernels where there is a GPU.

#include "trainer/ops/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "trainer/ops/op_test.h"

namespace lockstep::ops {
namespace {

using torch::autograd::variable_list;

constexpr double kEpsilon = 1e-5;
constexpr double kMomentum = 0.1;

// Rows that end within a block and beyond a grid; channels that are no packs, fewer than a block is wide,
// as many, and more; planes of one value and of an odd number.
const std::vector<std::vector<int64_t>> kShapes = {
    {2, 3},          {7, 8},       {333, 24},     {64, 512},        {9, 4096},
    {20000, 8},      {5, 776},     {2, 16, 1, 1}, {3, 24, 5, 7},    {2, 64, 33, 1},
    {2, 2048, 7, 7}, {1, 3, 9, 9}, {4, 40, 3, 3}, {8, 256, 14, 14}, {16, 64, 56, 56}};

struct Case {
  Activation activation;
  bool adds;
};
constexpr Case kCases[] = {{Activation::kNone, false},
                           {Activation::kRelu, false},
                           {Activation::kRelu, true},
                           {Activation::kNone, true}};

class BatchNormTest : public OpTest {
 protected:
  // Of what is rounded to dtype().
  double tolerance() const {
    return dtype() == at::kFloat ? 2e-4 : dtype() == at::kHalf ? 2e-3 : 1.6e-2;
  }
  double SumTolerance() const { return dtype() == at::kFloat ? 1e-4 : 1e-3; }
  // Float64 on a CPU takes its time.
  bool IsForGpus(at::IntArrayRef sizes) const {
    return device() == at::kCPU && c10::multiply_integers(sizes) > 300'000;
  }
  // Images channels last.
  at::Tensor Random(at::IntArrayRef sizes) const {
    const at::Tensor values = 2 * at::randn(sizes, options()) + 0.5;
    return sizes.size() == 4 ? values.contiguous(at::MemoryFormat::ChannelsLast) : values;
  }
  ChannelNorm Norm(int64_t channels) const {
    const at::TensorOptions floats = options(at::kFloat);
    return {.weight = (at::randn({channels}, floats) + 1).requires_grad_(),
            .bias = at::randn({channels}, floats).requires_grad_(),
            .running_mean = at::randn({channels}, floats),
            .running_var = at::rand({channels}, floats) + 0.5,
            .num_batches_tracked = at::zeros({}, options(at::kLong)),
            .counters = NewNormCounters(channels, device()),
            .epsilon = kEpsilon,
            .momentum = kMomentum};
  }
};

at::Tensor Exact(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).clone().requires_grad_();
}

// Float64 leaves that Expected() gave gradients to.
struct Exactly {
  Exactly(const at::Tensor& x, const ChannelNorm& from, const at::Tensor& residual)
      : x(Exact(x)), norm(from) {
    norm.weight = Exact(from.weight);
    norm.bias = Exact(from.bias);
    norm.running_mean = from.running_mean.to(at::kDouble).clone();
    norm.running_var = from.running_var.to(at::kDouble).clone();
    if (residual.defined()) this->residual = Exact(residual);
  }
  // What ReLU gets.
  at::Tensor Sum() const {
    const at::Tensor y = at::batch_norm(x, norm.weight, norm.bias, norm.running_mean,
                                        norm.running_var, /*training=*/true, kMomentum, kEpsilon,
                                        /*cudnn_enabled=*/false);
    return residual.defined() ? y + residual : y;
  }
  at::Tensor x;
  ChannelNorm norm;
  at::Tensor residual;
};

TEST_P(BatchNormTest, IsPyTorchs) {
  for (const std::vector<int64_t>& sizes : kShapes) {
    for (const auto& [activation, adds] : kCases) {
      if (IsForGpus(sizes)) continue;
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << ", ReLU "
                                      << (activation == Activation::kRelu) << ", adds " << adds);
      const at::Tensor x = Random(sizes).requires_grad_();
      const ChannelNorm norm = Norm(sizes[1]);
      const at::Tensor residual = adds ? Random(sizes).requires_grad_() : at::Tensor();
      const Exactly exactly(x, norm, residual);
      const at::Tensor sum = exactly.Sum();
      const at::Tensor expected = activation == Activation::kRelu ? sum.relu() : sum;
      // What lies so close to 0 that rounding decides whether it passes gets no gradient.
      const double close = 4 * tolerance();
      const at::Tensor dy = Random(sizes) * (sum.abs() > close).to(dtype());
      expected.backward(dy.to(at::kDouble));

      const at::Tensor y = BatchNorm(x, norm, activation, residual);
      EXPECT_EQ(y.scalar_type(), dtype());
      y.backward(dy);
      EXPECT_TRUE(IsNear(y, expected, tolerance()));
      EXPECT_TRUE(IsNear(x.grad(), exactly.x.grad(), tolerance()));
      EXPECT_TRUE(IsNear(norm.weight.grad(), exactly.norm.weight.grad(), SumTolerance()));
      EXPECT_TRUE(IsNear(norm.bias.grad(), exactly.norm.bias.grad(), SumTolerance()));
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
    const Exactly exactly_a(a, norm_a, {});
    const Exactly exactly_b(b, norm_b, {});
    const at::Tensor sum = exactly_a.Sum() + exactly_b.Sum();
    const at::Tensor expected = sum.relu();
    // The twin rounds what either norm gives.
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
    // The same sums, but each may be changed in place.
    EXPECT_NE(norm_a.bias.grad().const_data_ptr(), norm_b.bias.grad().const_data_ptr());
  }
}

TEST_P(BatchNormTest, IsExactFarFromZero) {
  const at::Tensor x =
      (at::randn({4096, 64}, options(at::kFloat)) + 50).to(dtype()).requires_grad_();
  const ChannelNorm norm = Norm(64);
  const Exactly exactly(x, norm, {});
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
  // What rounding could let pass or not gets no gradient.
  const at::Tensor sum = Exactly(a, norm_a, {}).Sum() + Exactly(b, norm_b, {}).Sum();
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
  for (const auto& [activation, adds] : kCases) {
    ExpectAddsToGradients(
        [&] { BatchNorm(x, norm, activation, adds ? other : at::Tensor()).backward(dy); },
        {norm.weight, norm.bias});
  }
  ExpectAddsToGradients([&] { JoinBatchNorms(x, norm, other, other_norm).backward(dy); },
                        {norm.weight, norm.bias, other_norm.weight, other_norm.bias});
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

TEST_P(BatchNormTest, CountsBatches) {
  ChannelNorm norm = Norm(16);
  const ChannelNorm other = Norm(16);
  const at::Tensor x = Random({40, 16});
  BatchNorm(x, norm, Activation::kRelu);
  BatchNorm(x, norm, Activation::kRelu, x);
  JoinBatchNorms(x, norm, x, other);
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 3);
  EXPECT_EQ(other.num_batches_tracked.item<int64_t>(), 1);
  // One row, too, which the running statistics cannot follow.
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
  const Exactly exactly(x, norm, {});
  EXPECT_TRUE(at::equal(BatchNorm(x, exactly.norm, Activation::kNone), exactly.Sum()));
  EXPECT_TRUE(at::equal(JoinBatchNorms(x, exactly.norm, x, exactly.norm),
                        (exactly.Sum() + exactly.Sum()).relu()));
}

INSTANTIATE_TEST_SUITE_P(, BatchNormTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
