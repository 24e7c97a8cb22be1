// Compares values and gradients with those of plain operations in float64. The twin (the plain ATen implementation) is
// tested on any machine, and the kernels are tested if there is a GPU.

#include "ops/norm/squeeze_excite.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

using at::Tensor;
using torch::autograd::grad;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

class SqueezeExciteTest : public OpTest {
 protected:
  double tolerance() const {
    return dtype() == at::kFloat ? 1e-5 : dtype() == at::kHalf ? 2e-3 : 1e-2;
  }
  Tensor Images(at::IntArrayRef sizes) const {
    return at::randn(sizes, options()).contiguous(kLast);
  }
};

Tensor Exact(const Tensor& tensor) { return tensor.detach().to(at::kDouble).requires_grad_(); }

// Returns a gate that depends only on the mean.
Tensor GateOf(const Tensor& mean) { return at::sigmoid(3 * mean + 0.5); }

Tensor GatedBy(const Tensor& x) { return x * GateOf(at::mean(x, {2, 3}, /*keepdim=*/true)); }

// The shapes of x. In some shapes the pixels do not fill the last thread block or a thread's last group of loads; one
// shape has one pixel; some shapes have few images with many pixels, so that the sums are divided into slices. The
// channels fill one pack, or several blocks of which the last is not full; 13 channels are no whole packs.
const std::vector<std::vector<int64_t>> kShapes = {
    {1, 8, 1, 1},    {3, 24, 5, 7},    {2, 32, 112, 112}, {5, 96, 56, 56},   {300, 16, 9, 9},
    {2, 1152, 7, 7}, {9, 672, 14, 14}, {1, 272, 3, 3},    {40, 144, 28, 28}, {1, 4104, 2, 3},
    {2, 13, 6, 6},   {1, 8, 300, 301}, {700, 264, 2, 2}};

TEST_P(SqueezeExciteTest, HasTheMeanTheProductAndTheirGradients) {
  for (const std::vector<int64_t>& shape : kShapes) {
    // On a CPU the float64 reference takes too long for large shapes.
    if (device() == at::kCPU && c10::multiply_integers(shape) > 200'000) continue;
    SCOPED_TRACE(testing::Message() << at::IntArrayRef(shape));
    const Tensor x = Images(shape).requires_grad_();
    const Tensor gate = at::rand({shape[0], shape[1], 1, 1}, options()).requires_grad_();
    EXPECT_EQ(HasSqueezeKernels(x), Is16BitOnGpu() && shape[1] % 8 == 0);
    const Tensor exact_x = Exact(x);
    const Tensor exact_gate = Exact(gate);
    const Tensor exact_mean = exact_x.mean({2, 3}, /*keepdim=*/true);
    const Tensor expected = exact_x * exact_gate;
    const auto [mean, same_x] = Squeeze(x);
    const Tensor y = Excite(same_x, gate);
    EXPECT_EQ(mean.scalar_type(), dtype());
    EXPECT_EQ(y.scalar_type(), dtype());
    EXPECT_TRUE(y.is_contiguous(kLast));
    EXPECT_EQ(same_x.const_data_ptr(), x.const_data_ptr());
    EXPECT_TRUE(IsNear(mean, exact_mean, tolerance()));
    EXPECT_TRUE(IsNear(y, expected, tolerance()));
    const Tensor dy = Images(shape);
    // The values of d_mean range up to the number of pixels, so that d_mean contributes about as much to x's gradient
    // as dy does. The values are at most 60,000, because the greatest float16 number is 65,504.
    const Tensor d_mean = at::rand_like(mean) * std::min<int64_t>(shape[2] * shape[3], 60'000);
    const auto compare = [&](const std::vector<Tensor>& results,
                             const std::vector<Tensor>& exact_results,
                             const std::vector<Tensor>& gradients, bool of_x, bool of_gate) {
      std::vector<Tensor> exact_gradients;
      for (const Tensor& gradient : gradients) exact_gradients.push_back(gradient.to(at::kDouble));
      std::vector<Tensor> inputs, exact_inputs;
      if (of_x) inputs.push_back(x), exact_inputs.push_back(exact_x);
      if (of_gate) inputs.push_back(gate), exact_inputs.push_back(exact_gate);
      const auto found = grad(results, inputs, gradients, /*retain_graph=*/true);
      const auto wanted = grad(exact_results, exact_inputs, exact_gradients,
                               /*retain_graph=*/true);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].scalar_type(), dtype());
        EXPECT_TRUE(IsNear(found[i], wanted[i], tolerance())) << "input " << i;
      }
    };
    // All calls use the same graph, so they also test that one run of backward leaves nothing in the pair for the next
    // run.
    compare({y, mean}, {expected, exact_mean}, {dy, d_mean}, true, true);
    compare({y, mean}, {expected, exact_mean}, {dy, d_mean}, true, false);
    compare({y}, {expected}, {dy}, true, true);
    compare({y}, {expected}, {dy}, false, true);
    compare({mean}, {exact_mean}, {d_mean}, true, false);
    compare({y, mean}, {expected, exact_mean}, {dy, d_mean}, false, true);
  }
}

TEST_P(SqueezeExciteTest, TakesTheGateOfTheMean) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 32, 20, 20}, {3, 480, 7, 7}}) {
    const Tensor x = Images(shape).requires_grad_();
    const Tensor exact = Exact(x);
    const auto [mean, same_x] = Squeeze(x);
    const Tensor y = Excite(same_x, GateOf(mean));
    const Tensor dy = Images(shape) + 1;
    EXPECT_TRUE(IsNear(y, GatedBy(exact), tolerance()));
    y.backward(dy);
    GatedBy(exact).backward(dy.to(at::kDouble));
    EXPECT_TRUE(IsNear(x.grad(), exact.grad(), 2 * tolerance()));
  }
}

TEST_P(SqueezeExciteTest, NeedsNoGradients) {
  const Tensor x = Images({3, 24, 5, 7});
  const Tensor gate = at::rand({3, 24, 1, 1}, options());
  const Tensor expected = x.to(at::kDouble) * gate.to(at::kDouble);
  const Tensor dy = Images({3, 24, 5, 7});
  // Only the gate needs a gradient.
  const Tensor own_gate = gate.clone().requires_grad_();
  const Tensor y = Excite(Squeeze(x).same_x, own_gate);
  EXPECT_TRUE(IsNear(y, expected, tolerance()));
  y.backward(dy);
  EXPECT_TRUE(IsNear(own_gate.grad(),
                     (dy.to(at::kDouble) * x.to(at::kDouble)).sum({2, 3}, /*keepdim=*/true),
                     tolerance()));
  // Only x needs a gradient.
  const Tensor own_x = x.clone(kLast).requires_grad_();
  Excite(Squeeze(own_x).same_x, gate).backward(dy);
  EXPECT_TRUE(IsNear(own_x.grad(), dy.to(at::kDouble) * gate.to(at::kDouble), tolerance()));
  // Neither x nor the gate needs a gradient.
  EXPECT_FALSE(Excite(Squeeze(x).same_x, gate).requires_grad());
  const at::NoGradGuard no_grad;
  const Tensor plain = Excite(Squeeze(own_x).same_x, own_gate);
  EXPECT_FALSE(plain.requires_grad());
  EXPECT_TRUE(IsNear(plain, expected, tolerance()));
}

// Checks that the gradients are right for uses of the results in which Squeeze() and Excite() form no pair.
TEST_P(SqueezeExciteTest, IsNoPairOfWhatIsNone) {
  const Tensor x = Images({3, 24, 5, 7}).requires_grad_();
  const Tensor gate = at::rand({3, 24, 1, 1}, options()).requires_grad_();
  const Tensor other = at::rand({3, 24, 1, 1}, options()).requires_grad_();
  const std::vector<Tensor> exact = {Exact(x), Exact(gate), Exact(other)};
  const Tensor mean_of_exact = exact[0].mean({2, 3}, /*keepdim=*/true);
  const auto compare = [&](const Tensor& found, const Tensor& wanted) {
    const Tensor d = at::randn_like(found);
    const auto of_found = grad({found}, {x, gate, other}, {d}, /*retain_graph=*/true,
                               /*create_graph=*/false, /*allow_unused=*/true);
    const auto of_wanted = grad({wanted}, exact, {d.to(at::kDouble)}, /*retain_graph=*/true,
                                /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < of_found.size(); ++i) {
      ASSERT_EQ(of_found[i].defined(), of_wanted[i].defined()) << i;
      if (!of_found[i].defined()) continue;
      EXPECT_TRUE(IsNear(of_found[i], of_wanted[i], 3 * tolerance())) << i;
    }
  };
  {
    SCOPED_TRACE("x excited twice, and used otherwise");
    const auto [mean, same_x] = Squeeze(x);
    const Tensor y = Excite(same_x, gate) + Excite(same_x, other) + at::sin(same_x) + mean;
    compare(y, exact[0] * exact[1] + exact[0] * exact[2] + at::sin(exact[0]) + mean_of_exact);
  }
  {
    SCOPED_TRACE("a gate that is not one of channels");
    const auto [mean, same_x] = Squeeze(x);
    const Tensor y = Excite(same_x, gate.narrow(1, 0, 1)) + mean;
    compare(y, exact[0] * exact[1].narrow(1, 0, 1) + mean_of_exact);
  }
  {
    SCOPED_TRACE("a gate of another type");
    const auto [mean, same_x] = Squeeze(x);
    compare(Excite(same_x, gate.to(at::kFloat)), exact[0] * exact[1]);
  }
  {
    SCOPED_TRACE("without the other half");
    compare(Excite(x, gate), exact[0] * exact[1]);
    const auto [mean, same_x] = Squeeze(x);
    compare(mean * gate, mean_of_exact * exact[1]);
    compare(at::sin(same_x) * gate, at::sin(exact[0]) * exact[1]);
  }
  {
    SCOPED_TRACE("what was left for another run of backward");
    const auto [mean, same_x] = Squeeze(x);
    const Tensor y = Excite(same_x, gate);
    const auto of_same_x = grad({y}, {same_x, gate}, {at::randn_like(y)}, /*retain_graph=*/true,
                                /*create_graph=*/false, /*allow_unused=*/true);
    EXPECT_EQ(of_same_x[0].defined(), !Is16BitOnGpu()) << "whether it goes the short way";
    compare(mean * gate, mean_of_exact * exact[1]);
    compare(y + mean, exact[0] * exact[1] + mean_of_exact);
  }
  {
    SCOPED_TRACE("the mean excited");
    const auto [mean, same_x] = Squeeze(x);
    compare(Excite(mean, gate) + Excite(same_x, other),
            mean_of_exact * exact[1] + exact[0] * exact[2]);
  }
}

TEST_P(SqueezeExciteTest, HasSecondDerivatives) {
  const Tensor x = Images({3, 16, 4, 4}).requires_grad_();
  const Tensor exact = Exact(x);
  const auto second = [](const Tensor& y, const Tensor& of) {
    const Tensor first = grad({y.sum()}, {of}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    return grad({first.square().sum()}, {of})[0];
  };
  const auto [mean, same_x] = Squeeze(x);
  EXPECT_TRUE(IsNear(second(Excite(same_x, GateOf(mean)), x), second(GatedBy(exact), exact),
                     5 * tolerance()));
}

TEST_P(SqueezeExciteTest, TakesAnyLayout) {
  const Tensor x = at::randn({3, 16, 6, 5}, options());
  const Tensor wide = Images({3, 32, 6, 5}).narrow(1, 0, 16);
  const Tensor shifted = at::randn({2 * 5 * 5 * 16 + 1}, options())
                             .slice(0, 1)
                             .view({2, 5, 5, 16})
                             .permute({0, 3, 1, 2});
  for (const Tensor& images : {x, wide, shifted}) {
    const Tensor own = images.detach().requires_grad_();
    const Tensor exact = Exact(images);
    const auto [mean, same_x] = Squeeze(own);
    const Tensor y = Excite(same_x, GateOf(mean));
    EXPECT_TRUE(IsNear(y, GatedBy(exact), tolerance()));
    // The gradients of y are a tensor that is not channels last, and the expanded gradient of a sum.
    const Tensor dy = at::randn(images.sizes(), options());
    const Tensor found = grad({y}, {own}, {dy}, /*retain_graph=*/true)[0];
    EXPECT_TRUE(
        IsNear(found, grad({GatedBy(exact)}, {exact}, {dy.to(at::kDouble)})[0], 2 * tolerance()));
    const Tensor of_sum = grad({y.sum()}, {own})[0];
    EXPECT_TRUE(IsNear(of_sum, grad({GatedBy(exact).sum()}, {exact})[0], 2 * tolerance()));
  }
}

TEST_P(SqueezeExciteTest, GivesTheSameBits) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2, 32, 40, 40}, {9, 672, 14, 14}}) {
    const Tensor x = Images(shape).requires_grad_();
    const Tensor gate = at::rand({shape[0], shape[1], 1, 1}, options()).requires_grad_();
    const auto results = [&] {
      const auto [mean, same_x] = Squeeze(x);
      const Tensor y = Excite(same_x, gate);
      auto all = grad({y, mean}, {x, gate}, {x.detach(), gate.detach()});
      all.insert(all.end(), {mean.detach(), y.detach()});
      return all;
    };
    const auto first = results();
    const auto second = results();
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << i;
  }
}

// Checks that a pair is destroyed with its tensors, whether backward ran or not.
TEST_P(SqueezeExciteTest, KeepsNothing) {
  const Tensor x = Images({3, 24, 5, 7}).requires_grad_();
  const auto count = [&] { return x.storage().use_count(); };
  const size_t before = count();
  for (const bool has_backward : {false, true}) {
    const Tensor dy = Images({3, 24, 5, 7});
    const size_t before_dy = dy.storage().use_count();
    {
      const auto [mean, same_x] = Squeeze(x);
      const Tensor y = Excite(same_x, GateOf(mean));
      if (has_backward) y.backward(dy, /*retain_graph=*/true);
    }
    EXPECT_EQ(count(), before);
    x.mutable_grad() = Tensor();
    EXPECT_EQ(dy.storage().use_count(), before_dy);
  }
}

INSTANTIATE_TEST_SUITE_P(, SqueezeExciteTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
