// Compares output and gradient with the explicit softmax in float64 on the same rounded inputs. The twin
// (SelfAttentionTwin()) is tested on any machine, and the fused backends are tested if there is a GPU.

#include "ops/attention/attention.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "ops/attention/attention_kernel.h"

namespace lockstep::ops {
namespace {

// Computes attention in explicit steps. `mask` has the meaning of AttentionOptions::mask.
at::Tensor Explicit(const at::Tensor& qkv, int64_t heads, bool causal,
                    const at::Tensor& mask = {}) {
  const int64_t tokens = qkv.size(1);
  const int64_t size = qkv.size(2) / (3 * heads);
  const auto part = [&](int64_t p) {
    return qkv.narrow(2, p * heads * size, heads * size)
        .reshape({-1, tokens, heads, size})
        .transpose(1, 2);
  };
  at::Tensor scores =
      at::matmul(part(0), part(1).transpose(2, 3)) / std::sqrt(static_cast<double>(size));
  if (causal) {
    const at::Tensor hidden =
        at::ones({tokens, tokens}, qkv.options().dtype(at::kBool).requires_grad(false)).triu(1);
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  }
  if (mask.defined()) {
    scores = mask.scalar_type() == at::kBool
                 ? scores.masked_fill(~mask, -std::numeric_limits<double>::infinity())
                 : scores + mask.to(at::kDouble);
  }
  return at::matmul(scores.softmax(-1), part(2))
      .transpose(1, 2)
      .reshape({-1, tokens, heads * size});
}

// Returns the norm of the error, divided by the norm of `expected` or by `least`, whichever is greater.
double Error(const at::Tensor& actual, const at::Tensor& expected, double least = 0) {
  return (actual.to(at::kDouble) - expected).norm().item<double>() /
         std::max({expected.norm().item<double>(), least, 1e-30});
}

TEST(Attention, OnTheCpuIsTheExplicitSoftmax) {
  for (const bool causal : {false, true}) {
    for (const auto& [heads, size, tokens] :
         {std::tuple<int64_t, int64_t, int64_t>{1, 8, 1}, {2, 20, 5}, {3, 40, 33}}) {
      const at::TensorOptions options = at::TensorOptions(at::kDouble);
      at::Tensor qkv = at::randn({2, tokens, 3 * heads * size}, options).requires_grad_();
      at::Tensor exact = qkv.detach().clone().requires_grad_();
      const at::Tensor d_out = at::randn({2, tokens, heads * size}, options);
      const at::Tensor out = SelfAttention(qkv, heads, {.causal = causal});
      const at::Tensor expected = Explicit(exact, heads, causal);
      EXPECT_LT(Error(out, expected), 1e-12);
      EXPECT_TRUE(out.is_contiguous());
      out.backward(d_out);
      expected.backward(d_out);
      EXPECT_LT(Error(qkv.grad(), exact.grad()), 1e-12);
    }
  }
}

// Returns masks for `count` sequences. There are four masks. The first hides the tokens beyond each sequence's length.
// The second adds a number for each head and key. The third adds a number for each sequence, head, query and key. The
// fourth hides, for each token, all later tokens.
std::vector<at::Tensor> Masks(int64_t count, int64_t heads, int64_t tokens, at::TensorOptions to) {
  const at::Tensor lengths = at::arange(1, count + 1, to.dtype(at::kLong)).clamp_max(tokens);
  const at::Tensor places = at::arange(tokens, to.dtype(at::kLong));
  return {places.lt(lengths.view({-1, 1, 1, 1})), at::randn({1, heads, 1, tokens}, to),
          at::randn({count, heads, tokens, tokens}, to), places.le(places.view({-1, 1}))};
}

TEST(Attention, OnTheCpuTakesMasks) {
  const at::TensorOptions options = at::TensorOptions(at::kDouble);
  for (const at::Tensor& mask : Masks(3, 2, 17, options)) {
    at::Tensor qkv = at::randn({3, 17, 3 * 2 * 8}, options).requires_grad_();
    at::Tensor exact = qkv.detach().clone().requires_grad_();
    const at::Tensor out = SelfAttention(qkv, 2, {.mask = mask});
    const at::Tensor expected = Explicit(exact, 2, /*causal=*/false, mask);
    EXPECT_LT(Error(out, expected), 1e-12);
    const at::Tensor d_out = at::randn_like(out);
    out.backward(d_out);
    expected.backward(d_out);
    EXPECT_LT(Error(qkv.grad(), exact.grad()), 1e-12);
  }
}

class AttentionOnGpu : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
  }
  at::TensorOptions options() const { return at::TensorOptions(at::kCUDA).dtype(GetParam()); }
  // Returns the tolerance, which follows from the types' precision (8, 11 and 24 bits) and from a few intermediate
  // roundings.
  double tolerance() const {
    return GetParam() == at::kFloat ? 1e-4 : GetParam() == at::kHalf ? 5e-3 : 3e-2;
  }
};

TEST_P(AttentionOnGpu, IsTheExplicitSoftmax) {
  for (const bool causal : {true, false}) {
    for (const auto& [heads, size] :
         {std::pair<int64_t, int64_t>{1, 64}, {6, 64}, {12, 64}, {3, 40}, {2, 20}}) {
      for (const int64_t tokens : {1, 7, 64, 256, 1000}) {
        SCOPED_TRACE(testing::Message() << (causal ? "causal, " : "") << heads << " heads of "
                                        << size << ", " << tokens << " tokens");
        const int64_t count = 3;
        const int64_t width = heads * size;
        const at::Tensor input = at::randn({count, tokens, 3 * width}, options());
        at::Tensor exact = input.to(at::kDouble).requires_grad_();
        const at::Tensor expected = Explicit(exact, heads, causal);
        // The three gradients of the output are a contiguous tensor, a transposed tensor, and an expanded vector with
        // one number for each column.
        for (const at::Tensor& d_out :
             {at::randn({count, tokens, width}, options()),
              at::randn({count, width, tokens}, options()).transpose(1, 2),
              at::randn({width}, options()).expand({count, tokens, width})}) {
          at::Tensor qkv = input.clone().requires_grad_();
          const at::Tensor out = SelfAttention(qkv, heads, {.causal = causal});
          EXPECT_EQ(out.scalar_type(), GetParam());
          EXPECT_TRUE(out.is_contiguous());
          EXPECT_LT(Error(out, expected), tolerance());
          out.backward(d_out);
          exact.mutable_grad() = at::Tensor();
          expected.backward(d_out.to(at::kDouble), /*retain_graph=*/true);
          const double whole = exact.grad().norm().item<double>();
          for (int64_t part = 0; part < 3; ++part) {
            EXPECT_LT(Error(qkv.grad().narrow(2, part * width, width),
                            exact.grad().narrow(2, part * width, width), 0.1 * whole),
                      tolerance())
                << "part " << part;
          }
          EXPECT_LT((qkv.grad() - exact.grad()).abs().max().item<double>(),
                    2 * tolerance() * exact.grad().abs().max().item<double>());
        }
        // The result must also be correct if no backward can follow.
        const c10::NoGradGuard no_grad;
        EXPECT_LT(Error(SelfAttention(input, heads, {.causal = causal}), expected), tolerance());
      }
    }
  }
}

TEST_P(AttentionOnGpu, TakesMasks) {
  for (const auto& [heads, size] :
       {std::pair<int64_t, int64_t>{1, 64}, {12, 64}, {3, 40}, {2, 20}}) {
    for (const int64_t tokens : {1, 7, 128, 500}) {
      for (const at::Tensor& mask : Masks(3, heads, tokens, options())) {
        SCOPED_TRACE(testing::Message() << heads << " heads of " << size << ", " << tokens
                                        << " tokens, mask " << mask.sizes());
        at::Tensor qkv = at::randn({3, tokens, 3 * heads * size}, options()).requires_grad_();
        at::Tensor exact = qkv.detach().to(at::kDouble).requires_grad_();
        const at::Tensor out = SelfAttention(qkv, heads, {.mask = mask});
        const at::Tensor expected = Explicit(exact, heads, /*causal=*/false, mask);
        EXPECT_EQ(out.scalar_type(), GetParam());
        EXPECT_LT(Error(out, expected), tolerance());
        const at::Tensor d_out = at::randn(out.sizes(), options());
        out.backward(d_out);
        expected.backward(d_out.to(at::kDouble));
        EXPECT_LT(Error(qkv.grad(), exact.grad()), tolerance());
      }
    }
  }
}

// Checks that backward draws the same dropout as forward. For fixed random numbers, out is a linear function of the
// values v. If `out` itself is passed to backward as the gradient of `out`, the scalar products <out, out> and <dv, v>
// are equal only if backward has drawn the same random numbers as forward. The two dropout rates are 1/2, which cuDNN
// supports, and 1/10, which cuDNN does not support.
TEST_P(AttentionOnGpu, DropsTheSameInBackward) {
  for (const double dropout : {0.5, 0.1}) {
    std::vector<at::Tensor> masks = Masks(4, 2, 128, options());
    masks.emplace_back();  // causal, without a mask
    for (const at::Tensor& mask : masks) {
      const auto drop = [&](const at::Tensor& qkv) {
        return SelfAttention(qkv, 2, {.dropout = dropout, .causal = !mask.defined(), .mask = mask});
      };
      at::Tensor qkv = at::randn({4, 128, 3 * 2 * 64}, options()).requires_grad_();
      const at::Tensor out = drop(qkv);
      EXPECT_GT(Error(drop(qkv), out.to(at::kDouble)), 0.1);
      out.backward(out.detach());
      const auto inner = [](const at::Tensor& a, const at::Tensor& b) {
        return (a.to(at::kDouble) * b.to(at::kDouble)).sum().item<double>();
      };
      const at::Tensor v = qkv.detach().narrow(2, 2 * 128, 128);
      const at::Tensor dv = qkv.grad().narrow(2, 2 * 128, 128);
      EXPECT_NEAR(inner(dv, v) / inner(out, out), 1, 1e-2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, AttentionOnGpu, testing::Values(at::kBFloat16, at::kHalf, at::kFloat),
                         [](const auto& param) { return std::string(c10::toString(param.param)); });

// Tests the kernel directly, with strides, sizes and addresses that SelfAttention() rarely passes.
TEST(PackHeads, IsStack) {
  if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kHalf);
  const auto check = [&](const std::array<at::Tensor, 3>& parts) {
    const AttentionShape shape{.count = parts[0].size(0),
                               .tokens = parts[0].size(2),
                               .heads = parts[0].size(1),
                               .size = parts[0].size(3)};
    std::array<HeadsView, 3> views;
    for (size_t p = 0; p < views.size(); ++p) {
      views[p] = {parts[p].const_data_ptr(), parts[p].stride(0), parts[p].stride(1),
                  parts[p].stride(2)};
    }
    const at::Tensor out =
        at::full({shape.count, shape.tokens, 3, shape.heads, shape.size}, NAN, options);
    LaunchPackHeads(views, out.mutable_data_ptr(), shape, c10::cuda::getCurrentCUDAStream());
    const at::Tensor expected = at::stack({parts[0], parts[1], parts[2]}).permute({1, 3, 0, 2, 4});
    EXPECT_TRUE(at::equal(out, expected)) << parts[0].sizes();
  };
  for (const auto& [count, heads, tokens, size] : {std::array<int64_t, 4>{1, 1, 1, 8},
                                                   {2, 3, 65, 64},
                                                   {1, 12, 63, 40},
                                                   {5, 2, 1, 20},
                                                   {3, 7, 130, 3}}) {
    const auto dense = [&, count = count, heads = heads, tokens = tokens, size = size] {
      return at::randn({count, heads, tokens, size}, options);
    };
    const auto by_token = [&, count = count, heads = heads, tokens = tokens, size = size] {
      return at::randn({count, tokens, heads, size}, options).transpose(1, 2);
    };
    check({dense(), by_token(), by_token()});
    check({by_token(), by_token(), by_token()});
    // The first tensor begins at an address that is not a multiple of 16 bytes, and the rows of the last tensor have
    // gaps of one value.
    check({at::randn({count * heads * tokens * size + 1}, options)
               .narrow(0, 1, count * heads * tokens * size)
               .view({count, heads, tokens, size}),
           by_token(), at::randn({count, heads, tokens, size + 1}, options).narrow(3, 0, size)});
  }
}

}  // namespace
}  // namespace lockstep::ops
