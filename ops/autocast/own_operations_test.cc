// If there is a GPU, compares values, gradients and second derivatives with those of LibTorch in float64. On any
// machine, checks on a simulated ("foretold") GPU which operations are Lockstep's and which are LibTorch's.

#include "ops/autocast/own_operations.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <limits>
#include <string>
#include <vector>

#include "base/tensor/autocast.h"
#include "base/tensor/foretold_memory.h"
#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

class OwnOperationsTest : public OpTest {
 protected:
  void SetUp() override {
    OpTest::SetUp();
    if (!IsSkipped()) UseOwnOperations();
  }
  at::Tensor Leaf(at::IntArrayRef sizes, double scale = 1) const {
    const at::Tensor values = scale * at::randn(sizes, options(at::kFloat));
    return (sizes.size() == 4 ? values.contiguous(kLast) : values).requires_grad_();
  }
  AutocastGuard On() const { return AutocastGuard({at::kCUDA, true, dtype(), true}); }
  double tolerance() const { return dtype() == at::kHalf ? 4e-3 : 3e-2; }
  static at::Tensor Exact(const at::Tensor& tensor) {
    return tensor.detach().to(at::kDouble).clone().requires_grad_();
  }
};

struct Convolved {
  std::vector<int64_t> x, weight;
  int64_t stride = 1, padding = 0, groups = 1;
};

TEST_P(OwnOperationsTest, Conv2dIsLibTorchs) {
  const std::vector<Convolved> cases = {
      {{4, 16, 9, 9}, {24, 16, 3, 3}, 1, 1},    {{4, 16, 9, 9}, {24, 16, 1, 1}},
      {{4, 16, 9, 9}, {24, 16, 1, 1}, 2},       {{4, 3, 32, 32}, {16, 3, 7, 7}, 2, 3},
      {{4, 3, 16, 16}, {16, 3, 4, 4}, 4},       {{4, 12, 9, 9}, {12, 1, 3, 3}, 1, 1, 12},
      {{4, 48, 9, 9}, {48, 24, 3, 3}, 1, 1, 2}, {{4, 32, 9, 9}, {32, 8, 3, 3}, 1, 1, 4}};
  for (const Convolved& of : cases) {
    SCOPED_TRACE(testing::Message() << at::IntArrayRef(of.x) << at::IntArrayRef(of.weight));
    for (const bool has_bias : {false, true}) {
      const at::Tensor x = Leaf(of.x);
      const at::Tensor weight = Leaf(of.weight, 0.1);
      const at::Tensor bias = has_bias ? Leaf({of.weight[0]}) : at::Tensor();
      const auto convolved = [&](const auto&... tensors) {
        return at::conv2d(tensors..., of.stride, of.padding, 1, of.groups);
      };
      const at::Tensor exact_x = Exact(x);
      const at::Tensor exact_weight = Exact(weight);
      const at::Tensor exact_bias = has_bias ? Exact(bias) : at::Tensor();
      const at::Tensor expected = convolved(exact_x, exact_weight, exact_bias);
      const at::Tensor dy = at::randn_like(expected);
      expected.backward(dy);
      const at::Tensor y = [&] {
        const AutocastGuard on = On();
        return convolved(x, weight, bias);
      }();
      EXPECT_EQ(y.scalar_type(), dtype());
      y.backward(dy.to(dtype()));
      EXPECT_TRUE(IsNear(y, expected, tolerance()));
      EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), tolerance()));
      EXPECT_TRUE(IsNear(weight.grad(), exact_weight.grad(), tolerance()));
      if (!has_bias) continue;
      EXPECT_TRUE(IsNear(bias.grad(), exact_bias.grad(), tolerance()));
    }
  }
}

// Compares the gradients of a gradient penalty, like that of a GAN's critic, with those of LibTorch in float64.
TEST_P(OwnOperationsTest, CanBeDifferentiatedTwice) {
  const auto penalty = [&](const at::Tensor& x, const at::Tensor& stem, const at::Tensor& wide,
                           const at::Tensor& narrow, const at::Tensor& last) {
    at::Tensor y = at::conv2d(x, stem, {}, /*stride=*/2, /*padding=*/3);
    y = at::conv2d(at::silu(y), wide, {}, 1, 1);
    y = at::conv2d(at::silu(y), narrow);
    y = at::linear(at::silu(y).mean({2, 3}), last);
    const at::Tensor dx = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    return dx.to(at::kDouble).square().sum();
  };
  const std::vector<at::Tensor> leaves = {Leaf({2, 3, 16, 16}), Leaf({8, 3, 7, 7}, 0.2),
                                          Leaf({16, 8, 3, 3}, 0.2), Leaf({8, 16, 1, 1}, 0.3),
                                          Leaf({8, 8}, 0.5)};
  std::vector<at::Tensor> exact;
  for (const at::Tensor& leaf : leaves) exact.push_back(Exact(leaf));
  penalty(exact[0], exact[1], exact[2], exact[3], exact[4]).backward();
  {
    const AutocastGuard on = On();
    penalty(leaves[0], leaves[1], leaves[2], leaves[3], leaves[4]).backward();
  }
  for (size_t i = 1; i < leaves.size(); ++i) {
    EXPECT_TRUE(IsNear(leaves[i].grad(), exact[i].grad(), 3 * tolerance())) << i;
  }
}

TEST_P(OwnOperationsTest, LinearIsLibTorchs) {
  for (const auto& sizes : {std::vector<int64_t>{5, 16}, {3, 7, 24}, {2, 3, 5, 8}}) {
    SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes));
    const at::Tensor x = Leaf(sizes);
    const at::Tensor weight = Leaf({32, sizes.back()}, 0.3);
    const at::Tensor bias = Leaf({32});
    const at::Tensor exact_x = Exact(x);
    const at::Tensor exact_weight = Exact(weight);
    const at::Tensor exact_bias = Exact(bias);
    const at::Tensor expected = at::linear(exact_x, exact_weight, exact_bias);
    const at::Tensor dy = at::randn_like(expected);
    expected.backward(dy);
    const at::Tensor y = [&] {
      const AutocastGuard on = On();
      return at::linear(x, weight, bias);
    }();
    y.backward(dy.to(dtype()));
    EXPECT_TRUE(IsNear(y, expected, tolerance()));
    EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), tolerance()));
    EXPECT_TRUE(IsNear(weight.grad(), exact_weight.grad(), tolerance()));
    EXPECT_TRUE(IsNear(bias.grad(), exact_bias.grad(), tolerance()));
  }
}

TEST_P(OwnOperationsTest, AViewOfImagesChannelsLastIsACopy) {
  const AutocastGuard on = On();
  const at::Tensor x = Leaf({2, 3, 4, 5});
  EXPECT_TRUE(at::equal(x.view({2, -1}), x.contiguous().view({2, -1})));
  EXPECT_THROW(x.view({7, -1}), c10::Error);
  EXPECT_THROW(x.permute({1, 0, 2, 3}).view(-1), c10::Error);
}

TEST_P(OwnOperationsTest, SayWhatDoesNotFit) {
  const AutocastGuard on = On();
  EXPECT_THROW(at::conv2d(Leaf({2, 8, 4, 4}), Leaf({8, 16, 3, 3})), c10::Error);
  EXPECT_THROW(at::conv2d(Leaf({2, 8, 2, 2}), Leaf({8, 8, 3, 3})), c10::Error);
  EXPECT_THROW(at::linear(Leaf({2, 8}), Leaf({8, 16})), c10::Error);
}

// Checks which operations are Lockstep's and which are LibTorch's, on tensors of the device "meta", which Lockstep
// treats like tensors of a GPU.
class OwnOperationsOfAForetoldGpu : public testing::Test {
 protected:
  static constexpr auto kForetelling = c10::DispatchKey::AutocastPrivateUse1;

  static void SetUpTestSuite() {
    static auto& library =
        *new torch::Library(torch::Library::IMPL, "aten", kForetelling, __FILE__, __LINE__);
    static auto& others =
        *new torch::Library(torch::Library::IMPL, "_", kForetelling, __FILE__, __LINE__);
    RegisterOwnOperations(library);
    others.fallback(torch::CppFunction::makeFallthrough());
  }
  static at::Tensor Leaf(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
    const at::Tensor values = at::empty(sizes, at::TensorOptions(at::kMeta).dtype(type));
    return (sizes.size() == 4 ? values.contiguous(kLast) : values).requires_grad_();
  }
  static std::string NameOf(const at::Tensor& y) { return y.grad_fn()->name(); }

  // Runs a convolution and its backward. Returns the name of the result's autograd node, or "LibTorch's" if LibTorch's
  // convolution was called.
  static std::string Convolved(at::IntArrayRef x, at::IntArrayRef w, int64_t stride,
                               int64_t padding, int64_t groups = 1, int64_t dilation = 1) {
    const at::Tensor input = Leaf(x);
    const at::Tensor weight = Leaf(w);
    at::Tensor y;
    try {
      y = at::conv2d(input, weight, {}, stride, padding, dilation, groups);
    } catch (const c10::NotImplementedError&) {
      return "LibTorch's";  // LibTorch has no convolution for the device "meta"
    }
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(y.is_contiguous(kLast));
    y.backward(at::empty_like(y));
    EXPECT_EQ(input.grad().sizes(), x);
    EXPECT_EQ(weight.grad().sizes(), w);
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
    return NameOf(y);
  }

  void SetUp() override {
    c10::impl::tls_set_dispatch_key_excluded(kForetelling, false);
    c10::impl::tls_set_dispatch_key_included(kForetelling, true);
  }
  void TearDown() override {
    c10::impl::tls_set_dispatch_key_included(kForetelling, false);
    c10::impl::tls_set_dispatch_key_excluded(kForetelling, true);
  }

  ForetoldMemory memory_{std::numeric_limits<int64_t>::max()};
  AutocastGuard on_{{at::kCUDA, true, at::kBFloat16, true}};
};

TEST_F(OwnOperationsOfAForetoldGpu, TakeWhatTheyCompute) {
  using testing::HasSubstr;
  EXPECT_THAT(Convolved({2, 16, 9, 9}, {24, 16, 3, 3}, 2, 1), HasSubstr("FusedConvolution"));
  EXPECT_THAT(Convolved({2, 16, 9, 9}, {24, 16, 1, 1}, 1, 0), HasSubstr("FusedFork"));
  EXPECT_THAT(Convolved({2, 16, 9, 9}, {24, 16, 1, 1}, 2, 0), HasSubstr("FusedConvolution"));
  EXPECT_THAT(Convolved({2, 48, 9, 9}, {48, 24, 3, 3}, 1, 1, 2), HasSubstr("FusedConvolution"));
  EXPECT_THAT(Convolved({2, 3, 32, 32}, {24, 3, 7, 7}, 2, 3), HasSubstr("FusedStem"));
  EXPECT_THAT(Convolved({2, 16, 9, 9}, {16, 1, 5, 5}, 2, 2, 16), HasSubstr("FusedDepthwise"));
  // Checks that the result of a convolution with a bias can be changed in place, by relu_().
  for (const int64_t size : {1, 3}) {
    const at::Tensor bias = Leaf({24});
    const at::Tensor y = at::conv2d(Leaf({2, 16, 9, 9}), Leaf({24, 16, size, size}), bias).relu_();
    EXPECT_TRUE(y.is_contiguous(kLast));
    y.backward(at::empty_like(y));
    EXPECT_EQ(bias.grad().sizes(), bias.sizes());
  }
  const at::Tensor weight = Leaf({8, 24});
  const at::Tensor y = at::linear(Leaf({2, 5, 24}), weight, Leaf({8}));
  EXPECT_THAT(NameOf(y), HasSubstr("FusedLinear"));
  EXPECT_EQ(y.sizes(), at::IntArrayRef({2, 5, 8}));
  y.backward(at::empty_like(y));
  EXPECT_EQ(weight.grad().sizes(), weight.sizes());
}

TEST_F(OwnOperationsOfAForetoldGpu, LeaveTheRest) {
  using testing::HasSubstr;
  const std::string libtorchs = "LibTorch's";
  EXPECT_EQ(Convolved({2, 3, 9, 9}, {24, 3, 3, 3}, 1, 1), libtorchs);
  EXPECT_EQ(Convolved({2, 32, 9, 9}, {32, 16, 3, 3}, 1, 1, 2), libtorchs);
  EXPECT_EQ(Convolved({2, 16, 9, 9}, {24, 16, 3, 3}, 1, 2, 1, 2), libtorchs);
  EXPECT_EQ(Convolved({2, 16, 29, 29}, {16, 1, 9, 9}, 1, 4, 16), libtorchs);
  // Here neither x nor the weight is channels last, so LibTorch's convolution is called and throws.
  EXPECT_THROW(at::conv2d(Leaf({2, 16, 9, 9}).contiguous(), Leaf({8, 16, 3, 3}).contiguous()),
               c10::NotImplementedError);
  const at::Tensor x = Leaf({2, 16, 4, 4});
  EXPECT_EQ(x.view({2, -1}).sizes(), at::IntArrayRef({2, 256}));
  EXPECT_THROW(x.detach().permute({1, 0, 2, 3}).view(-1), c10::Error);
  const at::Tensor rounded = Leaf({8, 24}, at::kBFloat16);
  EXPECT_THAT(NameOf(at::linear(Leaf({5, 24}), rounded)), Not(HasSubstr("Fused")));
  const AutocastGuard off({at::kCUDA, false, at::kBFloat16, true});
  EXPECT_THAT(NameOf(at::linear(Leaf({5, 24}), Leaf({8, 24}))), Not(HasSubstr("Fused")));
}

INSTANTIATE_TEST_SUITE_P(, OwnOperationsTest,
                         testing::Combine(testing::Values(at::kCUDA),
                                          testing::Values(at::kHalf, at::kBFloat16)),
                         DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
