// Compares values and gradients with those of the explicit softmax in float64 on the same rounded inputs.

#include "ops/attention/grouped_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kCount = 2, kTokens = 24, kSize = 16;

// Computes attention in explicit steps; each head of keys and values is repeated.
at::Tensor Explicit(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const at::Tensor& mask, double scale, bool causal) {
  const int64_t times = query.size(1) / key.size(1);
  at::Tensor scores = at::matmul(query, key.repeat_interleave(times, 1).transpose(2, 3)) * scale;
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  if (causal) {
    const at::Tensor later =
        at::ones({kTokens, kTokens}, query.options().dtype(at::kBool).requires_grad(false)).triu(1);
    scores = scores.masked_fill(later, kHidden);
  }
  if (mask.defined()) {
    scores = mask.scalar_type() == at::kBool ? scores.masked_fill(~mask, kHidden) : scores + mask;
  }
  return at::matmul(scores.softmax(-1), value.repeat_interleave(times, 1));
}

class GroupedAttentionTest : public OpTest {
 protected:
  double tolerance() const {
    return dtype() == at::kFloat ? 1e-4 : dtype() == at::kHalf ? 4e-3 : 3e-2;
  }
  at::Tensor Heads(int64_t heads) const {
    return at::randn({kCount, kTokens, heads, kSize}, options()).transpose(1, 2).requires_grad_();
  }
  static at::Tensor Exact(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.scalar_type() == at::kBool) return tensor;
    return tensor.detach().to(at::kDouble).requires_grad_(tensor.requires_grad());
  }
  void ExpectIsExplicit(int64_t heads, int64_t shared, const at::Tensor& mask,
                        std::optional<double> scale, bool causal) const {
    SCOPED_TRACE(testing::Message() << heads << " heads share " << shared << ", causal " << causal
                                    << ", mask " << mask.defined());
    const std::vector<at::Tensor> inputs{Heads(heads), Heads(shared), Heads(shared), mask};
    std::vector<at::Tensor> exact;
    for (const at::Tensor& input : inputs) exact.push_back(Exact(input));
    const at::Tensor y = GroupedAttention(inputs[0], inputs[1], inputs[2],
                                          {.causal = causal, .mask = mask, .scale = scale});
    const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(kSize)));
    const at::Tensor wanted = Explicit(exact[0], exact[1], exact[2], exact[3], factor, causal);
    EXPECT_EQ(y.scalar_type(), dtype());
    EXPECT_TRUE(IsNear(y, wanted.detach(), tolerance()));
    const at::Tensor dy = at::randn(y.sizes(), options());
    y.backward(dy);
    wanted.backward(dy.to(at::kDouble));
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
      EXPECT_TRUE(IsNear(inputs[i].grad(), exact[i].grad(), tolerance())) << i;
    }
  }
};

TEST_P(GroupedAttentionTest, IsTheExplicitSoftmax) {
  at::Tensor seen = at::rand({kCount, 1, 1, kTokens}, options().dtype(at::kFloat)) < 0.8;
  seen.narrow(3, 0, 1).fill_(true);
  for (const int64_t shared : {6, 3, 1}) {
    ExpectIsExplicit(6, shared, /*mask=*/{}, std::nullopt, /*causal=*/false);
    ExpectIsExplicit(6, shared, /*mask=*/{}, 1.0, /*causal=*/true);
    ExpectIsExplicit(6, shared, seen.expand({kCount, 1, kTokens, kTokens}), std::nullopt, false);
  }
}

// As in T5, whose bias comes from an embedding: [tokens, tokens, heads], permuted.
TEST_P(GroupedAttentionTest, TakesAPermutedBiasThatIsLearned) {
  for (const int64_t shared : {6, 2}) {
    const at::Tensor bias = at::randn({1, kTokens, kTokens, 6}, options()).permute({0, 3, 1, 2});
    ExpectIsExplicit(6, shared, bias.requires_grad_(), 1.0, /*causal=*/false);
  }
}

TEST_P(GroupedAttentionTest, PassesOnOtherSizes) {
  // Three dimensions, with another number of keys than of queries.
  const at::Tensor q = at::randn({3, 5, kSize}, options()),
                   k = at::randn({3, 10, kSize}, options());
  const at::Tensor y = GroupedAttention(q, k, k, {});
  EXPECT_TRUE(at::allclose(y, at::scaled_dot_product_attention(q, k, k)));
  // Neither number of heads divides the other.
  EXPECT_THROW(GroupedAttention(Heads(6), Heads(4), Heads(4), {}), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(, GroupedAttentionTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
