// Compares values and gradients with those of the same operation in float64. FeedForwardTwin() and the separate
// operations (Linear() and BiasActivation()) are tested on any machine, and the fused kernels are tested if the GPU
// supports them.

#include "ops/product/feed_forward.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kSilu,
                                       Activation::kGelu, Activation::kGeluTanh};
// The activation and the layout for which there are fused kernels.
constexpr Activation kFusedActivation = Activation::kGeluTanh;
constexpr WeightLayout kFusedLayout = WeightLayout::kInputsOutputs;
constexpr WeightLayout kLayouts[] = {WeightLayout::kInputsOutputs, WeightLayout::kOutputsInputs};

struct Case {
  std::vector<int64_t> leading;
  int64_t inputs, hidden, outputs;
};

const Case kSmallCase = {{37}, 24, 40, 16};
// Cases with so many tiles that the fused kernels are used. Some cases fill their tiles, and others leave the last
// tiles partly empty.
const Case kFusedCases[] = {{{4, 4096}, 64, 1536, 64},
                            {{4099}, 256, 1024, 256},
                            {{3, 667}, 776, 3080, 776},
                            {{20011}, 40, 200, 24},
                            {{34001}, 8, 8, 8}};

class FeedForwardTest : public OpTest {
 protected:
  // Returns the tolerance for the results of two layers that round to dtype().
  double tolerance() const {
    return dtype() == at::kFloat ? 1e-5 : dtype() == at::kHalf ? 2e-3 : 1.6e-2;
  }
  // Returns whether there are fused kernels for this device and type.
  bool IsFused() const {
    if (!Is16BitOnGpu()) return false;
    const auto* properties = at::cuda::getCurrentDeviceProperties();
    return properties->major == 9 && properties->minor == 0;
  }
  // Returns a case for the separate operations, and, if there are fused kernels, a case for the fused kernels.
  std::vector<Case> Cases() const {
    return IsFused() ? std::vector<Case>{kSmallCase, kFusedCases[1]}
                     : std::vector<Case>{kSmallCase};
  }
  at::Tensor Random(at::IntArrayRef sizes) const { return at::randn(sizes, options()); }
  static std::vector<int64_t> Sizes(const Case& of, int64_t width) {
    std::vector<int64_t> sizes = of.leading;
    sizes.push_back(width);
    return sizes;
  }
  // Returns a random weight. It is scaled so that the values of each layer are about 1.
  at::Tensor Weight(int64_t inputs, int64_t outputs, WeightLayout layout) const {
    const bool inputs_first = layout == WeightLayout::kInputsOutputs;
    const at::Tensor weight = at::randn(
        inputs_first ? at::IntArrayRef({inputs, outputs}) : at::IntArrayRef({outputs, inputs}),
        options(at::kFloat));
    return weight.div_(std::sqrt(static_cast<double>(inputs))).requires_grad_();
  }
  FeedForwardWeights Weights(const Case& of, WeightLayout layout, bool has_out_bias = true) const {
    const auto bias = [&](int64_t width) {
      return at::randn({width}, options(at::kFloat)).requires_grad_();
    };
    return {Weight(of.inputs, of.hidden, layout), bias(of.hidden),
            Weight(of.hidden, of.outputs, layout), has_out_bias ? bias(of.outputs) : at::Tensor()};
  }
  // Compares values and all gradients with those of FeedForwardTwin() in float64, which gets fc, out and out_bias
  // rounded to dtype().
  void ExpectTheTwins(const at::Tensor& x, const FeedForwardWeights& weights, const at::Tensor& dy,
                      WeightLayout layout, Activation activation) const {
    const at::Tensor y = FeedForward(x, weights, layout, activation);
    EXPECT_EQ(y.scalar_type(), dtype());
    y.backward(dy);

    const auto exact = [&](const at::Tensor& tensor, at::ScalarType rounded_to) {
      if (!tensor.defined()) return tensor;
      return tensor.detach().to(rounded_to).to(at::kDouble).requires_grad_();
    };
    const at::Tensor exact_x = exact(x, dtype());
    const FeedForwardWeights exact_weights = {
        exact(weights.fc, dtype()), exact(weights.fc_bias, at::kFloat), exact(weights.out, dtype()),
        exact(weights.out_bias, dtype())};
    const at::Tensor expected = FeedForwardTwin(exact_x, exact_weights, layout, activation);
    expected.backward(dy.to(at::kDouble));
    EXPECT_TRUE(IsNear(y, expected, tolerance()));
    EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), tolerance()));
    const auto expect_gradient = [&](const at::Tensor& weight, const at::Tensor& exact_weight) {
      EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
      EXPECT_TRUE(weight.grad().is_contiguous());
      EXPECT_TRUE(IsNear(weight.grad(), exact_weight.grad(), tolerance()));
    };
    expect_gradient(weights.fc, exact_weights.fc);
    expect_gradient(weights.fc_bias, exact_weights.fc_bias);
    expect_gradient(weights.out, exact_weights.out);
    if (weights.out_bias.defined()) expect_gradient(weights.out_bias, exact_weights.out_bias);
  }
};

TEST_P(FeedForwardTest, IsTheTwins) {
  for (const Case& of : {Case{{1}, 1, 1, 1}, Case{{5}, 8, 16, 24}, Case{{2, 9}, 24, 40, 13},
                         Case{{333}, 64, 256, 64}}) {
    for (const WeightLayout layout : kLayouts) {
      for (const Activation activation : kActivations) {
        // ReLU is skipped for 16-bit types, because rounding can change the sign of ReLU's input and thus ReLU's slope.
        if (activation == Activation::kRelu && dtype() != at::kFloat) continue;
        for (const bool has_out_bias : {true, false}) {
          SCOPED_TRACE(testing::Message()
                       << at::IntArrayRef(of.leading) << " " << of.inputs << " to " << of.hidden
                       << " to " << of.outputs << ", layout " << static_cast<int>(layout)
                       << ", activation " << static_cast<int>(activation) << ", bias "
                       << has_out_bias);
          const at::Tensor x = Random(Sizes(of, of.inputs)).requires_grad_();
          const FeedForwardWeights weights = Weights(of, layout, has_out_bias);
          EXPECT_FALSE(HasFusedFeedForward(x, weights, layout, activation));
          ExpectTheTwins(x, weights, Random(Sizes(of, of.outputs)), layout, activation);
        }
      }
    }
  }
}

TEST_P(FeedForwardTest, FusedItIsTheTwins) {
  if (!IsFused()) GTEST_SKIP() << "needs a GPU of compute capability 9.0, and 16 bits";
  for (const Case& of : kFusedCases) {
    for (const bool has_out_bias : {true, false}) {
      SCOPED_TRACE(testing::Message()
                   << at::IntArrayRef(of.leading) << " " << of.inputs << " to " << of.hidden
                   << " to " << of.outputs << ", bias " << has_out_bias);
      const at::Tensor x = Random(Sizes(of, of.inputs)).requires_grad_();
      const FeedForwardWeights weights = Weights(of, kFusedLayout, has_out_bias);
      EXPECT_TRUE(HasFusedFeedForward(x, weights, kFusedLayout, kFusedActivation));
      ExpectTheTwins(x, weights, Random(Sizes(of, of.outputs)), kFusedLayout, kFusedActivation);
    }
  }
}

// Checks the errors of the fused GELU and of its derivative. The weights are identity matrices, so the products have no
// rounding errors.
TEST_P(FeedForwardTest, FusedItsActivationIsAsCloseAsItSays) {
  if (!IsFused()) GTEST_SKIP() << "needs a GPU of compute capability 9.0, and 16 bits";
  constexpr int64_t kWidth = 256;
  const at::Tensor x =
      at::linspace(-8, 8, 20000 * kWidth, options(at::kFloat)).to(dtype()).view({-1, kWidth});
  x.requires_grad_();
  const at::Tensor ones = at::eye(kWidth, options(at::kFloat));
  const FeedForwardWeights weights = {ones, at::zeros({kWidth}, options(at::kFloat)), ones, {}};
  EXPECT_TRUE(HasFusedFeedForward(x, weights, kFusedLayout, kFusedActivation));
  const at::Tensor y = FeedForward(x, weights, kFusedLayout, kFusedActivation);
  y.backward(at::ones_like(y));

  const at::Tensor exact_x = x.detach().to(at::kDouble).requires_grad_();
  const at::Tensor exact = at::gelu(exact_x, "tanh");
  exact.backward(at::ones_like(exact));
  // The maximum errors: `rounding` is the relative error of rounding to 8 or 11 bits, `least` is the error of rounding
  // to float16's subnormal values, and `off` is the error of tanh.
  const bool is_rough = dtype() == at::kBFloat16;
  const double rounding = is_rough ? 0x1p-8 : 0x1p-11;
  const double least = is_rough ? 0 : 0x1p-25;
  const double off = is_rough ? 0x1p-11 : 1e-6;
  const at::Tensor away = exact_x.detach().abs();
  const auto expect_within = [=](const at::Tensor& actual, const at::Tensor& expected,
                                 const at::Tensor& error) {
    const at::Tensor rounded = rounding * (expected.abs() + error) + least;
    const at::Tensor difference = (actual.to(at::kDouble) - expected).abs() - error - rounded;
    EXPECT_LE(difference.max().item<double>(), 0);
  };
  expect_within(y.detach(), exact.detach(), off / 2 * away);
  const at::Tensor slope = exact_x.grad();
  const at::Tensor inner_slope = 0.7978845608 * (1 + 3 * 0.044715 * away.square());
  expect_within(x.grad(), slope, off * (0.5 + away * inner_slope));
}

TEST_P(FeedForwardTest, KnowsWhatItHasNoKernelFor) {
  const Case of = kFusedCases[1];
  for (const WeightLayout layout : kLayouts) {
    const at::Tensor x = Random(Sizes(of, of.inputs));
    const FeedForwardWeights weights = Weights(of, layout);
    for (const Activation activation : kActivations) {
      EXPECT_EQ(HasFusedFeedForward(x, weights, layout, activation),
                IsFused() && layout == kFusedLayout && activation == kFusedActivation);
    }
    const auto has = [&](const at::Tensor& values, const FeedForwardWeights& other) {
      return HasFusedFeedForward(values, other, layout, kFusedActivation);
    };
    EXPECT_FALSE(has(x.narrow(0, 0, 128), weights));  // too few tiles
    EXPECT_FALSE(has(x.narrow(0, 0, 0), weights));
    EXPECT_FALSE(has(x.to(at::kDouble), weights));
    EXPECT_FALSE(has(x.narrow(1, 0, 128), weights));  // x's width does not fit the weight
    FeedForwardWeights changed = weights;
    changed.out = weights.out.detach().t().contiguous().t();
    EXPECT_FALSE(has(x, changed));
    changed = weights;
    changed.fc_bias = weights.fc_bias.detach().to(dtype());
    EXPECT_FALSE(has(x, changed));
    const Case odd = {of.leading, of.inputs, of.hidden + 4, of.outputs};
    EXPECT_FALSE(has(x, Weights(odd, layout)));
  }
}

TEST_P(FeedForwardTest, SaysWhatDoesNotFit) {
  const FeedForwardWeights weights = Weights({{}, 16, 24, 16}, WeightLayout::kInputsOutputs);
  const auto run = [&](const at::Tensor& x, const FeedForwardWeights& of) {
    FeedForward(x, of, WeightLayout::kInputsOutputs, Activation::kGeluTanh);
  };
  EXPECT_THROW(run(Random({4, 24}), weights), c10::Error);
  EXPECT_THROW(run(Random({4, 16}), {weights.fc, weights.fc_bias, weights.fc, {}}), c10::Error);
}

TEST_P(FeedForwardTest, TakesAnyAddressAndStride) {
  const Case of = Cases().back();
  const int64_t rows = of.leading[0];
  for (const WeightLayout layout : kLayouts) {
    const auto shifted = [&](int64_t width) {
      return Random({rows * width + 1}).narrow(0, 1, rows * width).view({rows, width});
    };
    const auto transposed = [&](int64_t width) { return Random({width, rows}).t(); };
    FeedForwardWeights weights = Weights(of, layout);
    weights.fc_bias =
        at::randn({of.hidden + 1}, options(at::kFloat)).narrow(0, 1, of.hidden).requires_grad_();
    ExpectTheTwins(shifted(of.inputs).requires_grad_(), weights, shifted(of.outputs), layout,
                   kFusedActivation);
    ExpectTheTwins(transposed(of.inputs).requires_grad_(), Weights(of, layout),
                   transposed(of.outputs), layout, kFusedActivation);
  }
}

TEST_P(FeedForwardTest, AddsToTheGradientsThatAreThere) {
  for (const Case& of : Cases()) {
    for (const WeightLayout layout : kLayouts) {
      const at::Tensor x = Random(Sizes(of, of.inputs));
      const at::Tensor dy = Random(Sizes(of, of.outputs));
      const FeedForwardWeights weights = Weights(of, layout);
      ExpectAddsToGradients([&] { FeedForward(x, weights, layout, kFusedActivation).backward(dy); },
                            {weights.fc, weights.fc_bias, weights.out, weights.out_bias});
    }
  }
}

TEST_P(FeedForwardTest, ComputesOnlyTheGradientsAskedFor) {
  for (const Case& of : Cases()) {
    for (const WeightLayout layout : kLayouts) {
      const at::Tensor x = Random(Sizes(of, of.inputs));
      const at::Tensor dy = Random(Sizes(of, of.outputs));
      const FeedForwardWeights weights = Weights(of, layout);
      const at::Tensor leaves[] = {x, weights.fc, weights.fc_bias, weights.out, weights.out_bias};
      const auto run = [&](int asked) {
        for (int i = 0; i < 5; ++i) {
          leaves[i].set_requires_grad(asked < 0 || i == asked);
          leaves[i].mutable_grad() = at::Tensor();
        }
        FeedForward(x, weights, layout, kFusedActivation).backward(dy);
      };
      run(/*asked: all*/ -1);
      std::vector<at::Tensor> expected;
      for (const at::Tensor& leaf : leaves) expected.push_back(leaf.grad().to(at::kDouble));
      for (int asked = 0; asked < 5; ++asked) {
        run(asked);
        for (int i = 0; i < 5; ++i) EXPECT_EQ(leaves[i].grad().defined(), i == asked) << i;
        EXPECT_TRUE(IsNear(leaves[asked].grad(), expected[asked], 1e-5)) << asked;
      }
    }
  }
}

TEST_P(FeedForwardTest, WithoutGradientsTheValuesAreTheSame) {
  for (const WeightLayout layout : kLayouts) {
    const Case of = Cases().back();
    const at::Tensor x = Random(Sizes(of, of.inputs)).requires_grad_();
    const FeedForwardWeights weights = Weights(of, layout);
    const at::Tensor y = FeedForward(x, weights, layout, kFusedActivation);
    const at::NoGradGuard no_grad;
    const at::Tensor same = FeedForward(x, weights, layout, kFusedActivation);
    EXPECT_FALSE(same.requires_grad());
    EXPECT_TRUE(at::equal(y, same));
  }
}

TEST_P(FeedForwardTest, GivesTheSameBitsEachTime) {
  for (const WeightLayout layout : kLayouts) {
    const Case of = Cases().back();
    const at::Tensor x = Random(Sizes(of, of.inputs)).requires_grad_();
    const at::Tensor dy = Random(Sizes(of, of.outputs));
    const FeedForwardWeights weights = Weights(of, layout);
    const auto run = [&] {
      const at::Tensor y = FeedForward(x, weights, layout, kFusedActivation);
      std::vector<at::Tensor> all = torch::autograd::grad(
          {y}, {x, weights.fc, weights.fc_bias, weights.out, weights.out_bias}, {dy});
      all.push_back(y);
      return all;
    };
    const auto first = run();
    const auto second = run();
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << i;
  }
}

TEST_P(FeedForwardTest, ABadRowStaysInItsRow) {
  if (device() == at::kCPU) GTEST_SKIP() << "ATen's there, whose products spread it on some CPUs";
  const Case of = Cases().back();
  const int64_t bad_row = of.leading[0] - 2;
  const at::Tensor dy = Random(Sizes(of, of.outputs));
  for (const WeightLayout layout : kLayouts) {
    const FeedForwardWeights weights = Weights(of, layout);
    const auto run = [&](const at::Tensor& x) {
      weights.fc_bias.mutable_grad() = at::Tensor();
      const at::Tensor y = FeedForward(x, weights, layout, kFusedActivation);
      y.backward(dy);
      return std::vector<at::Tensor>{y.detach(), x.grad()};
    };
    const at::Tensor good = Random(Sizes(of, of.inputs));
    const auto expected = run(good.clone().requires_grad_());
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      const at::Tensor x = good.clone();
      x[bad_row][3].fill_(bad);
      const auto results = run(x.requires_grad_());
      EXPECT_FALSE(results[0][bad_row].isfinite().any().item<bool>());
      // The gradients are compared only if `bad` is NaN, because PyTorch's formulas give different slopes at infinity.
      if (std::isnan(bad)) {
        EXPECT_TRUE(results[1][bad_row].isnan().all().item<bool>());
        EXPECT_TRUE(weights.fc_bias.grad().isnan().all().item<bool>());
      }
      for (size_t i = 0; i < results.size(); ++i) {
        results[i][bad_row].copy_(expected[i][bad_row]);
        EXPECT_TRUE(at::equal(results[i], expected[i])) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, FeedForwardTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
