// Compares output and gradients with the same formula in float64 on the same rounded inputs. The twin (the plain ATen
// implementation) is tested on any machine, and the kernels are tested if there is a GPU.

#include "ops/attention/unit_queries.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

constexpr double kLeast = 1e-12;

struct Sizes {
  int64_t windows, tokens, heads, size;
};

at::Tensor Explicit(const at::Tensor& qkv, int64_t heads, const at::Tensor& scale, double least) {
  const std::vector<at::Tensor> parts = qkv.chunk(3, 2);
  const auto by_head = [&](const at::Tensor& x) { return x.unflatten(2, {heads, -1}); };
  const auto unit = [&](const at::Tensor& x) {
    return x / x.square().sum(-1, /*keepdim=*/true).sqrt().clamp_min(least);
  };
  const at::Tensor queries = unit(by_head(parts[0])) * scale.view({heads, 1});
  return at::cat({queries.flatten(2), unit(by_head(parts[1])).flatten(2), parts[2]}, 2);
}

double Error(const at::Tensor& actual, const at::Tensor& expected) {
  return (actual.to(at::kDouble) - expected).norm().item<double>() /
         std::max(expected.norm().item<double>(), 1e-30);
}

class UnitQueriesTest : public OpTest {
 protected:
  at::Tensor Scale(int64_t heads) const {
    return (10 * at::rand({heads}, options(at::kFloat))).requires_grad_();
  }
  // Compares the output and both gradients.
  void ExpectExplicit(const at::Tensor& qkv, int64_t heads, const at::Tensor& scale, double least) {
    const double tolerance = dtype() == at::kFloat ? 1e-6 : dtype() == at::kHalf ? 1e-3 : 6e-3;
    const auto exact = [](const at::Tensor& x) {
      return x.detach().to(at::kDouble).clone().requires_grad_();
    };
    const at::Tensor exact_qkv = exact(qkv);
    const at::Tensor exact_scale = exact(scale);
    const at::Tensor expected = Explicit(exact_qkv, heads, exact_scale, least);
    const at::Tensor y = UnitQueries(qkv, heads, scale, least);
    EXPECT_EQ(y.scalar_type(), dtype());
    EXPECT_TRUE(y.is_contiguous());
    ASSERT_EQ(y.sizes(), expected.sizes());
    EXPECT_LT(Error(y, expected), tolerance);
    const at::Tensor dy = at::randn_like(y);
    const auto found = torch::autograd::grad({y}, {qkv, scale}, {dy});
    const auto wanted =
        torch::autograd::grad({expected}, {exact_qkv, exact_scale}, {dy.to(at::kDouble)});
    EXPECT_LT(Error(found[0], wanted[0]), tolerance);
    EXPECT_LT(Error(found[1], wanted[1]), 1e-4);
    // The same call gives the same bits.
    const auto again =
        torch::autograd::grad({UnitQueries(qkv, heads, scale, least)}, {qkv, scale}, {dy});
    EXPECT_TRUE(at::equal(found[0], again[0]));
    EXPECT_TRUE(at::equal(found[1], again[1]));
  }
};

TEST_P(UnitQueriesTest, AreOfLengthOne) {
  for (const auto& [windows, tokens, heads, size] :
       {Sizes{5, 49, 3, 32}, Sizes{2, 7, 1, 8}, Sizes{3, 9, 5, 16}, Sizes{1, 1, 2, 64},
        Sizes{2, 3, 3, 128}, Sizes{1, 5, 2, 256}, Sizes{40, 64, 6, 32}}) {
    SCOPED_TRACE(testing::Message() << windows << " windows of " << tokens << " tokens, " << heads
                                    << " heads of " << size);
    const at::Tensor qkv =
        at::randn({windows, tokens, 3 * heads * size}, options()).requires_grad_();
    const at::Tensor scale = Scale(heads);
    EXPECT_EQ(HasUnitQueriesKernels(qkv, heads, scale), Is16BitOnGpu());
    ExpectExplicit(qkv, heads, scale, kLeast);
  }
}

TEST_P(UnitQueriesTest, TakesOtherHeads) {
  for (const int64_t size : {4, 24, 33}) {
    const at::Tensor qkv = at::randn({2, 5, 3 * 2 * size}, options()).requires_grad_();
    EXPECT_FALSE(HasUnitQueriesKernels(qkv, 2, Scale(2)));
    ExpectExplicit(qkv, 2, Scale(2), kLeast);
  }
}

TEST_P(UnitQueriesTest, TakesAnyLayout) {
  const at::Tensor whole = at::randn({4, 3 * 64, 6}, options());
  const at::Tensor qkv = whole.transpose(1, 2).detach().requires_grad_();
  ExpectExplicit(qkv, 2, Scale(2), kLeast);
  const at::Tensor misaligned = at::randn({4 * 6 * 3 * 64 + 1}, options()).slice(0, 1);
  ExpectExplicit(misaligned.view({4, 6, 3 * 64}).detach().requires_grad_(), 2, Scale(2), kLeast);
}

// Vectors shorter than the least length are divided by that length, and zeros stay zeros.
TEST_P(UnitQueriesTest, ShortVectorsAreNotOfLengthOne) {
  at::Tensor qkv = at::randn({2, 6, 3 * 64}, options());
  qkv.select(1, 1).mul_(0.01);
  qkv.requires_grad_();
  ExpectExplicit(qkv, 2, Scale(2), /*least=*/0.5);
  const at::Tensor zeros = at::zeros({1, 2, 3 * 64}, options());
  EXPECT_TRUE(at::equal(UnitQueries(zeros, 2, Scale(2), kLeast), zeros));
}

TEST_P(UnitQueriesTest, CanBeDifferentiatedTwice) {
  const at::Tensor qkv = at::randn({2, 3, 3 * 16}, options()).requires_grad_();
  const at::Tensor scale = Scale(2);
  const auto second = [&](const at::Tensor& y) {
    const at::Tensor first = torch::autograd::grad({(y * y * y).sum()}, {qkv}, {},
                                                   /*retain_graph=*/true, /*create_graph=*/true)[0];
    return torch::autograd::grad({first.square().sum()}, {qkv})[0];
  };
  const at::Tensor found = second(UnitQueries(qkv, 2, scale, kLeast));
  const at::Tensor expected = second(UnitQueriesTwin(qkv, 2, scale, kLeast));
  EXPECT_LT(Error(found, expected.to(at::kDouble)), dtype() == at::kFloat ? 1e-6 : 2e-2);
}

INSTANTIATE_TEST_SUITE_P(, UnitQueriesTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
