// Compares values, gradients and running statistics with those of PyTorch's batch norm, ReLU and max-pooling in
// float64. The twin (the plain ATen implementation) is tested on any machine, and the kernels are tested if there is a
// GPU.

#include "ops/norm/norm_pool.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <vector>

#include "ops/norm/testing/norm_op_test.h"

namespace lockstep::ops {
namespace {

// The shapes of x. The channels are no whole packs, one pack, or more packs than a block has. Images are one pixel
// high, one pixel wide, or both; have odd or even sides; or have more rows than a thread processes.
const std::vector<std::vector<int64_t>> kShapes = {
    {3, 8, 1, 1},   {2, 8, 1, 7},    {2, 8, 7, 1},   {2, 24, 2, 2},    {3, 24, 5, 5},
    {2, 3, 7, 7},   {2, 64, 14, 15}, {4, 40, 15, 2}, {2, 2048, 5, 2},  {1, 8, 33, 31},
    {2, 12, 37, 6}, {1, 16, 64, 64}, {2, 64, 65, 3}, {16, 64, 56, 56}, {300, 64, 9, 9}};

class NormPoolTest : public NormOpTest {
 protected:
  // Returns random whole numbers, so that many windows have several equal greatest values, and different values differ
  // by more than a rounding error.
  at::Tensor RandomWhole(at::IntArrayRef sizes) const { return Random(sizes).round(); }
};

at::Tensor Pool(const at::Tensor& x) { return at::max_pool2d(x, 3, 2, 1); }

std::vector<int64_t> Pooled(at::IntArrayRef sizes) {
  return {sizes[0], sizes[1], (sizes[2] + 1) / 2, (sizes[3] + 1) / 2};
}

TEST_P(NormPoolTest, IsPyTorchs) {
  for (const std::vector<int64_t>& sizes : kShapes) {
    if (IsForGpus(sizes)) continue;
    SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes));
    const at::Tensor x = RandomWhole(sizes).requires_grad_();
    const ChannelNorm norm = Norm(sizes[1]);
    const Exactly exactly(x, norm);
    const at::Tensor expected = Pool(exactly.Sum().relu());
    // Values get no gradient if they are so close to 0 that rounding decides whether ReLU lets them pass. dy has whole
    // numbers, because the twin rounds sums of dy.
    const at::Tensor dy = RandomWhole(Pooled(sizes)) * (expected > 4 * tolerance()).to(dtype());
    expected.backward(dy.to(at::kDouble));

    const at::Tensor y = NormPool(x, norm);
    EXPECT_EQ(y.scalar_type(), dtype());
    y.backward(dy);
    EXPECT_TRUE(IsNear(y, expected, tolerance()));
    EXPECT_TRUE(IsNear(x.grad(), exactly.x.grad(), tolerance()));
    EXPECT_TRUE(IsNear(norm.weight.grad(), exactly.norm.weight.grad(), SumTolerance()));
    EXPECT_TRUE(IsNear(norm.bias.grad(), exactly.norm.bias.grad(), SumTolerance()));
    EXPECT_TRUE(IsNear(norm.running_mean, exactly.norm.running_mean, 1e-5));
    EXPECT_TRUE(IsNear(norm.running_var, exactly.norm.running_var, 1e-5));
    EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
  }
}

TEST_P(NormPoolTest, RanksThatShareABatchGiveTheWholes) {
  for (const std::vector<int64_t>& sizes : kShapes) {
    if (IsForGpus(sizes)) continue;
    const at::Tensor x = RandomWhole(sizes);
    const ChannelNorm norm = Norm(sizes[1]);
    const Exactly exactly(x, norm);
    const at::Tensor expected = Pool(exactly.Sum().relu());
    const at::Tensor dy = RandomWhole(Pooled(sizes)) * (expected > 4 * tolerance()).to(dtype());
    expected.backward(dy.to(at::kDouble));
    for (const std::vector<int64_t>& rows : Shares(sizes[0])) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << " in " << at::IntArrayRef(rows));
      const auto parts = InRanks(
          rows,
          [](const std::vector<at::Tensor>& leaves, const std::vector<ChannelNorm>& norms) {
            return NormPool(leaves[0], norms[0]);
          },
          {x}, {norm}, dy);
      ExpectWhole(parts, expected, {exactly.x.grad()}, {exactly.norm}, tolerance(), SumTolerance());
    }
  }
}

TEST_P(NormPoolTest, ValuesThatAreNotWholeArePyTorchs) {
  for (const std::vector<int64_t>& sizes : kShapes) {
    if (IsForGpus(sizes)) continue;
    SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes));
    const at::Tensor x = Random(sizes);
    const ChannelNorm norm = Norm(sizes[1]);
    const Exactly exactly(x, norm);
    EXPECT_TRUE(IsNear(NormPool(x, norm), Pool(exactly.Sum().relu()), tolerance()));
  }
}

TEST_P(NormPoolTest, NothingPassesWhereNothingIsPositive) {
  const std::vector<int64_t> sizes = {3, 24, 9, 6};
  const at::Tensor x = Random(sizes).requires_grad_();
  ChannelNorm norm = Norm(24);
  norm.bias = at::full({24}, -100, options(at::kFloat)).requires_grad_();
  const at::Tensor y = NormPool(x, norm);
  y.backward(Random(Pooled(sizes)));
  for (const at::Tensor& zeros : {y.detach(), x.grad(), norm.weight.grad(), norm.bias.grad()}) {
    EXPECT_EQ(zeros.abs().max().item<double>(), 0);
  }
}

// Checks that, if all normalised values of a window are equal, dy goes to the first of the window's pixels that lie in
// the image.
TEST_P(NormPoolTest, TheFirstOfEqualsWins) {
  const std::vector<int64_t> sizes = {2, 24, 7, 12};
  const at::Tensor x = Random(sizes);
  const at::Tensor dy = (3 * at::rand(Pooled(sizes), options())).round() + 1;
  std::vector<double> weights = {0};
  // The weight 1e-5 is so small that all normalised values are equal after rounding to 16 bits.
  if (dtype() != at::kFloat) weights.push_back(1e-5);
  for (const double weight : weights) {
    SCOPED_TRACE(weight);
    const at::Tensor leaf = x.detach().clone().requires_grad_();
    ChannelNorm norm = Norm(24);
    norm.weight = at::full({24}, weight, options(at::kFloat)).requires_grad_();
    norm.bias = at::ones({24}, options(at::kFloat)).requires_grad_();
    const at::Tensor y = NormPool(leaf, norm);
    y.backward(dy);
    EXPECT_TRUE(at::equal(y, at::ones_like(y)));

    const Exactly exactly(x, norm);
    const at::Tensor equal = at::ones(sizes, options().dtype(at::kDouble)).requires_grad_();
    const at::Tensor dz =
        torch::autograd::grad({Pool(equal)}, {equal}, {dy.to(at::kDouble)}).front();
    exactly.Sum().backward(dz);
    EXPECT_TRUE(IsNear(norm.weight.grad(), exactly.norm.weight.grad(), SumTolerance()));
    EXPECT_TRUE(IsNear(norm.bias.grad(), exactly.norm.bias.grad(), SumTolerance()));
    EXPECT_TRUE(IsNear(leaf.grad(), exactly.x.grad(), tolerance()));
  }
}

TEST_P(NormPoolTest, TakesAnyAddressAndStride) {
  const auto shifted = [&](int64_t height, int64_t width) {
    const int64_t count = 6 * 16 * height * width;
    return (2 * at::randn({count + 1}, options()))
        .round()
        .narrow(0, 1, count)
        .view({6, height, width, 16})
        .permute({0, 3, 1, 2});
  };
  const at::Tensor x = shifted(5, 4);
  const at::Tensor dy = shifted(3, 2);
  const auto run = [&](const at::Tensor& values, const at::Tensor& gradient) {
    const at::Tensor leaf = values.detach().requires_grad_();
    ChannelNorm norm = Norm(16);
    norm.weight = at::ones({16}, options(at::kFloat)).requires_grad_();
    norm.bias = at::full({16}, 0.3, options(at::kFloat)).requires_grad_();
    const at::Tensor y = NormPool(leaf, norm);
    y.backward(gradient);
    return std::vector<at::Tensor>{y.detach(), leaf.grad(), norm.weight.grad(), norm.bias.grad()};
  };
  const auto last = [](const at::Tensor& values) {
    return values.clone(at::MemoryFormat::ChannelsLast);
  };
  const auto first = [](const at::Tensor& values) {
    return values.clone(at::MemoryFormat::Contiguous);
  };
  const auto expected = run(last(x), last(dy));
  for (const auto& found : {run(x, dy), run(first(x), first(dy)), run(last(x), first(dy)),
                            run(last(x), dy), run(x, last(dy))}) {
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(IsNear(found[i], expected[i].to(at::kDouble), tolerance())) << i;
    }
  }
}

TEST_P(NormPoolTest, ABadChannelStaysInItsChannel) {
  const at::Tensor good = Random({6, 24, 5, 5});
  const at::Tensor bad = good.clone();
  bad[2][1][0][3].fill_(std::numeric_limits<float>::quiet_NaN());
  bad[5][17][4][4].fill_(std::numeric_limits<float>::infinity());
  const ChannelNorm norm = Norm(24);
  const at::Tensor dy = Random({6, 24, 3, 3});
  const auto run = [&](const at::Tensor& values) {
    const at::Tensor x = values.detach().clone().requires_grad_();
    const at::Tensor y = NormPool(x, norm);
    const auto gradients = torch::autograd::grad({y}, {x, norm.weight, norm.bias}, {dy});
    return std::vector<at::Tensor>{y.detach(), gradients[0], gradients[1].view({1, 24}),
                                   gradients[2].view({1, 24})};
  };
  const auto of_good = run(good);
  const auto of_bad = run(bad);
  for (int64_t channel = 0; channel < 24; ++channel) {
    const bool is_bad = channel == 1 || channel == 17;
    for (size_t i = 0; i < of_good.size(); ++i) {
      if (is_bad) continue;
      EXPECT_TRUE(at::equal(of_good[i].select(1, channel), of_bad[i].select(1, channel)))
          << channel << ", " << i;
    }
    EXPECT_EQ(of_bad[0].select(1, channel).isnan().all().item<bool>(), is_bad) << channel;
    EXPECT_EQ(of_bad[1].select(1, channel).isnan().all().item<bool>(), is_bad) << channel;
  }
}

TEST_P(NormPoolTest, GivesTheSameBitsEachTime) {
  const at::Tensor x = Random({16, 64, 28, 28}).requires_grad_();
  const ChannelNorm norm = Norm(64);
  const at::Tensor dy = Random({16, 64, 14, 14});
  const auto run = [&] {
    return torch::autograd::grad({NormPool(x, norm)}, {x, norm.weight, norm.bias}, {dy});
  };
  const auto first = run();
  const auto second = run();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << i;
}

TEST_P(NormPoolTest, TakesFrozenWeightsAndNoGradient) {
  ChannelNorm norm = Norm(16);
  norm.running_mean = at::Tensor();
  norm.running_var = at::Tensor();
  const at::Tensor x = Random({4, 16, 6, 6}).requires_grad_();
  const at::Tensor dy = Random({4, 16, 3, 3});
  ChannelNorm frozen = norm;
  frozen.weight = norm.weight.detach();
  frozen.bias = norm.bias.detach();
  const at::Tensor all = torch::autograd::grad({NormPool(x, norm)}, {x}, {dy})[0];
  const at::Tensor alone = torch::autograd::grad({NormPool(x, frozen)}, {x}, {dy})[0];
  EXPECT_TRUE(at::equal(all, alone));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(NormPool(x, norm).requires_grad());
}

INSTANTIATE_TEST_SUITE_P(, NormPoolTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
