// Compares output and gradients with the explicit softmax in float64 on the same rounded inputs. The twin (the plain
// ATen implementation) is tested on any machine, and the kernels are tested if there is a GPU.

#include "ops/attention/window_attention.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

namespace lockstep::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Sizes {
  int64_t windows, tokens, heads, kinds, size;  // `kinds` is 0 if there is no mask
};

void PrintTo(const Sizes& sizes, std::ostream* to) {
  *to << sizes.windows << " windows of " << sizes.tokens << " tokens, " << sizes.heads
      << " heads of " << sizes.size << ", " << sizes.kinds << " masks";
}

struct Inputs {
  at::Tensor qkv, bias, mask;
};

// Returns masks that hide about a third of the scores by adding `hidden`, for example -100 as in Swin, or -inf. Each
// token sees itself, and the first token sees only itself.
at::Tensor Mask(const Sizes& sizes, double hidden, const at::TensorOptions& options) {
  if (sizes.kinds == 0) return {};
  const int64_t tokens = sizes.tokens;
  at::Tensor hides = at::rand({sizes.kinds, tokens, tokens}, options.dtype(at::kFloat)) < 0.33;
  hides.select(1, 0).fill_(true);
  hides.diagonal(0, 1, 2).fill_(false);
  return at::zeros({sizes.kinds, tokens, tokens}, options.dtype(at::kFloat))
      .masked_fill(hides, hidden);
}

Inputs Random(const Sizes& sizes, double hidden, const at::TensorOptions& options) {
  const int64_t width = sizes.heads * sizes.size;
  return {.qkv = at::randn({sizes.windows, sizes.tokens, 3 * width}, options).requires_grad_(),
          .bias = at::randn({sizes.heads, sizes.tokens, sizes.tokens}, options.dtype(at::kFloat))
                      .requires_grad_(),
          .mask = Mask(sizes, hidden, options)};
}

// Returns the inputs in float64, as new leaf tensors.
Inputs InFloat64(const Inputs& inputs) {
  const auto exact = [](const at::Tensor& tensor) {
    return tensor.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  };
  return {.qkv = exact(inputs.qkv).requires_grad_(),
          .bias = exact(inputs.bias).requires_grad_(),
          .mask = inputs.mask.defined() ? exact(inputs.mask) : at::Tensor()};
}

at::Tensor Explicit(const Inputs& inputs, int64_t heads) {
  const int64_t windows = inputs.qkv.size(0);
  const int64_t tokens = inputs.qkv.size(1);
  const int64_t size = inputs.qkv.size(2) / (3 * heads);
  const auto part = [&](int64_t p) {
    return inputs.qkv.narrow(2, p * heads * size, heads * size)
        .reshape({windows, tokens, heads, size})
        .transpose(1, 2);
  };
  at::Tensor scores =
      at::matmul(part(0), part(1).transpose(2, 3)) / std::sqrt(static_cast<double>(size)) +
      inputs.bias;
  if (inputs.mask.defined()) {
    const at::Tensor kinds =
        at::arange(windows, inputs.mask.options().dtype(at::kLong)) % inputs.mask.size(0);
    scores = scores + inputs.mask.index_select(0, kinds).unsqueeze(1);
  }
  return at::matmul(scores.softmax(-1), part(2))
      .transpose(1, 2)
      .reshape({windows, tokens, heads * size});
}

at::Tensor Attention(const Inputs& inputs, int64_t heads) {
  return WindowAttention(inputs.qkv, heads, inputs.bias, inputs.mask);
}

// Returns the norm of the error, divided by the norm of `expected` or by `least`, whichever is greater.
double Error(const at::Tensor& actual, const at::Tensor& expected, double least = 0) {
  return (actual.to(at::kDouble) - expected).norm().item<double>() /
         std::max({expected.norm().item<double>(), least, 1e-30});
}

// Compares the output and all gradients with those of the explicit softmax.
void ExpectExplicit(const Inputs& inputs, int64_t heads, const at::Tensor& d_out,
                    double tolerance) {
  const Inputs exact = InFloat64(inputs);
  const at::Tensor expected = Explicit(exact, heads);
  const at::Tensor out = Attention(inputs, heads);
  EXPECT_EQ(out.scalar_type(), inputs.qkv.scalar_type());
  EXPECT_TRUE(out.is_contiguous());
  EXPECT_LT(Error(out, expected), tolerance);
  inputs.qkv.mutable_grad() = at::Tensor();
  inputs.bias.mutable_grad() = at::Tensor();
  out.backward(d_out);
  expected.backward(d_out.to(at::kDouble));
  const double whole = exact.qkv.grad().norm().item<double>();
  const int64_t width = inputs.qkv.size(2) / 3;
  for (int64_t part = 0; part < 3; ++part) {
    EXPECT_LT(Error(inputs.qkv.grad().narrow(2, part * width, width),
                    exact.qkv.grad().narrow(2, part * width, width), 0.1 * whole),
              tolerance)
        << "part " << part;
  }
  EXPECT_LT((inputs.qkv.grad() - exact.qkv.grad()).abs().max().item<double>(),
            2 * tolerance * exact.qkv.grad().abs().max().item<double>());
  EXPECT_EQ(inputs.bias.grad().scalar_type(), at::kFloat);
  // In a window of one token the score has no effect on the output, so the gradient of the bias is only a rounding
  // error.
  EXPECT_LT(Error(inputs.bias.grad(), exact.bias.grad(), 0.1 * whole), tolerance);
}

const Sizes kSizes[] = {{8, 49, 3, 4, 32},  {7, 49, 1, 1, 32}, {5, 49, 24, 0, 32},
                        {12, 64, 3, 4, 32}, {3, 64, 1, 0, 32}, {9, 57, 2, 3, 32},
                        {4, 56, 2, 2, 32},  {8, 16, 3, 4, 32}, {6, 7, 24, 1, 32},
                        {5, 17, 2, 0, 32},  {4, 1, 3, 4, 32}};

TEST(WindowAttention, OnTheCpuIsTheExplicitSoftmax) {
  at::manual_seed(1);
  for (const Sizes& sizes : kSizes) {
    for (const double hidden : {-100.0, -kInfinity}) {
      SCOPED_TRACE(testing::PrintToString(sizes));
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        const Inputs inputs = Random(sizes, hidden, at::TensorOptions(type));
        ExpectExplicit(inputs, sizes.heads,
                       at::randn({sizes.windows, sizes.tokens, sizes.heads * sizes.size}, type),
                       type == at::kFloat ? 1e-5 : 1e-2);
      }
    }
  }
}

class WindowAttentionOnGpu : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
    at::manual_seed(1);
  }
  at::TensorOptions options() const { return at::TensorOptions(at::kCUDA).dtype(GetParam()); }
  // Returns the tolerance, which follows from the types' precision (8 and 11 bits) and from a few intermediate
  // roundings.
  double tolerance() const { return GetParam() == at::kHalf ? 3e-3 : 2e-2; }

  at::Tensor Gradient(const Sizes& sizes) const {
    return at::randn({sizes.windows, sizes.tokens, sizes.heads * sizes.size}, options());
  }
  void Expect(const Sizes& sizes, double hidden) const {
    SCOPED_TRACE(testing::Message() << testing::PrintToString(sizes) << ", " << hidden);
    const Inputs inputs = Random(sizes, hidden, options());
    ExpectExplicit(inputs, sizes.heads, Gradient(sizes), tolerance());
  }
};

TEST_P(WindowAttentionOnGpu, IsTheExplicitSoftmax) {
  for (const Sizes& sizes : kSizes) {
    Expect(sizes, -100);
    if (sizes.kinds > 0) Expect(sizes, -kInfinity);
  }
}

// Tests more windows than thread blocks: each block has several windows, and some blocks have one window more than
// others.
TEST_P(WindowAttentionOnGpu, AddsUpManyWindows) {
  Expect({1500, 49, 3, 0, 32}, 0);
  Expect({4 * 457, 49, 3, 4, 32}, -100);
  Expect({64 * 9, 49, 3, 64, 32}, -kInfinity);
  Expect({777, 64, 2, 7, 32}, -100);
  Expect({2003, 16, 1, 1, 32}, -100);
}

TEST_P(WindowAttentionOnGpu, TakesGradientsAsTheyLie) {
  const Sizes sizes{8, 49, 3, 4, 32};
  const int64_t width = sizes.heads * sizes.size;
  // The three gradients of the output are a transposed tensor, an expanded vector with one number for each column, and
  // a tensor at an address that is not a multiple of 16 bytes.
  for (const at::Tensor& d_out :
       {at::randn({sizes.windows, width, sizes.tokens}, options()).transpose(1, 2),
        at::randn({width}, options()).expand({sizes.windows, sizes.tokens, width}),
        at::randn({sizes.windows * sizes.tokens * width + 1}, options())
            .narrow(0, 1, sizes.windows * sizes.tokens * width)
            .view({sizes.windows, sizes.tokens, width})}) {
    ExpectExplicit(Random(sizes, -100, options()), sizes.heads, d_out, tolerance());
  }
}

// Checks that values that one window leaves in shared memory do not change the results of the next window, even if the
// values are NaN.
TEST_P(WindowAttentionOnGpu, KeepsWindowsApart) {
  for (const int64_t tokens : {7, 49, 60}) {
    const Sizes sizes{3000, tokens, 1, 0, 32};
    const Inputs inputs = Random(sizes, 0, options());
    const Inputs spoilt = Random(sizes, 0, options());
    spoilt.qkv.detach().copy_(inputs.qkv.detach());
    spoilt.bias.detach().copy_(inputs.bias.detach());
    spoilt.qkv.detach().narrow(0, 0, 1000).fill_(NAN);
    const at::Tensor d_out = Gradient(sizes);
    const at::Tensor out = Attention(inputs, 1);
    const at::Tensor spoilt_out = Attention(spoilt, 1);
    out.backward(d_out);
    spoilt_out.backward(d_out);
    EXPECT_TRUE(at::equal(out.narrow(0, 1000, 2000), spoilt_out.narrow(0, 1000, 2000)));
    EXPECT_TRUE(at::equal(inputs.qkv.grad().narrow(0, 1000, 2000),
                          spoilt.qkv.grad().narrow(0, 1000, 2000)));
    EXPECT_TRUE(spoilt_out.narrow(0, 0, 1000).isnan().all().item<bool>());
  }
}

TEST_P(WindowAttentionOnGpu, HasTheSameBitsTwice) {
  const Sizes sizes{1024, 49, 3, 64, 32};
  const Inputs inputs = Random(sizes, -100, options());
  const at::Tensor d_out = Gradient(sizes);
  std::vector<std::vector<at::Tensor>> runs;
  for (int run = 0; run < 2; ++run) {
    const at::Tensor out = Attention(inputs, sizes.heads);
    inputs.qkv.mutable_grad() = at::Tensor();
    inputs.bias.mutable_grad() = at::Tensor();
    out.backward(d_out);
    runs.push_back({out.detach(), inputs.qkv.grad(), inputs.bias.grad()});
  }
  for (size_t i = 0; i < runs[0].size(); ++i) EXPECT_TRUE(at::equal(runs[0][i], runs[1][i])) << i;
}

TEST_P(WindowAttentionOnGpu, GivesOnlyTheGradientsThatAreWanted) {
  const Sizes sizes{8, 49, 3, 4, 32};
  const Inputs inputs = Random(sizes, -100, options());
  const at::Tensor d_out = Gradient(sizes);
  const at::Tensor expected = Attention(inputs, sizes.heads);
  expected.backward(d_out);
  {
    const c10::NoGradGuard no_grad;
    const at::Tensor out = Attention(inputs, sizes.heads);
    EXPECT_FALSE(out.requires_grad());
    EXPECT_TRUE(at::equal(out, expected));
  }
  const at::Tensor qkv = inputs.qkv.detach().clone().requires_grad_();
  WindowAttention(qkv, sizes.heads, inputs.bias.detach(), inputs.mask).backward(d_out);
  EXPECT_TRUE(at::equal(qkv.grad(), inputs.qkv.grad()));
  const at::Tensor bias = inputs.bias.detach().clone().requires_grad_();
  WindowAttention(inputs.qkv.detach(), sizes.heads, bias, inputs.mask).backward(d_out);
  EXPECT_TRUE(at::equal(bias.grad(), inputs.bias.grad()));
}

TEST_P(WindowAttentionOnGpu, HasSecondDerivatives) {
  const Sizes sizes{4, 7, 2, 2, 32};
  const Inputs inputs = Random(sizes, -100, options());
  const at::Tensor out = Attention(inputs, sizes.heads);
  const auto gradients =
      torch::autograd::grad({out}, {inputs.qkv, inputs.bias}, {at::ones_like(out)},
                            /*retain_graph=*/true, /*create_graph=*/true);
  gradients[0].to(at::kFloat).square().sum().backward();
  EXPECT_GT(inputs.qkv.grad().norm().item<double>(), 0);
  EXPECT_GT(inputs.bias.grad().norm().item<double>(), 0);
}

INSTANTIATE_TEST_SUITE_P(, WindowAttentionOnGpu, testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& param) { return std::string(c10::toString(param.param)); });

// Runs WindowAttention() on tensors of the device "meta", which Lockstep treats like tensors of a GPU. Checks the sizes
// and types of the results, and returns the name of the output's autograd node.
std::string Taken(const Sizes& sizes, at::ScalarType type = at::kBFloat16) {
  const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(type);
  const int64_t width = sizes.heads * sizes.size;
  const at::TensorOptions floats = options.dtype(at::kFloat);
  const Inputs inputs{
      .qkv = at::empty({sizes.windows, sizes.tokens, 3 * width}, options).requires_grad_(),
      .bias = at::empty({sizes.heads, sizes.tokens, sizes.tokens}, floats).requires_grad_(),
      .mask = sizes.kinds > 0 ? at::empty({sizes.kinds, sizes.tokens, sizes.tokens}, floats)
                              : at::Tensor()};
  const at::Tensor out = Attention(inputs, sizes.heads);
  EXPECT_EQ(out.sizes(), at::IntArrayRef({sizes.windows, sizes.tokens, width}));
  EXPECT_EQ(out.scalar_type(), type);
  out.backward(at::empty_like(out));
  EXPECT_EQ(inputs.qkv.grad().sizes(), inputs.qkv.sizes());
  EXPECT_EQ(inputs.qkv.grad().scalar_type(), type);
  EXPECT_EQ(inputs.bias.grad().sizes(), inputs.bias.sizes());
  EXPECT_EQ(inputs.bias.grad().scalar_type(), at::kFloat);
  return out.grad_fn()->name();
}

TEST(WindowAttention, TakesWindowsOfSwin) {
  using testing::HasSubstr;
  EXPECT_THAT(Taken({8192, 49, 3, 64, 32}), HasSubstr("FusedWindowAttention"));
  EXPECT_THAT(Taken({8192, 49, 3, 0, 32}), HasSubstr("FusedWindowAttention"));
  EXPECT_THAT(Taken({32, 64, 24, 0, 32}, at::kHalf), HasSubstr("FusedWindowAttention"));
}

TEST(WindowAttention, TakesOtherWindows) {
  using testing::HasSubstr;
  EXPECT_THAT(Taken({8, 49, 3, 4, 32}, at::kFloat), Not(HasSubstr("FusedWindowAttention")));
  EXPECT_THAT(Taken({8, 49, 3, 4, 64}), Not(HasSubstr("FusedWindowAttention")));
  EXPECT_THAT(Taken({8, 65, 3, 4, 32}), Not(HasSubstr("FusedWindowAttention")));
  // Checks the results for windows of 65 tokens and heads of 20 values, which the kernels do not support.
  at::manual_seed(1);
  const Sizes sizes{6, 65, 2, 3, 20};
  ExpectExplicit(Random(sizes, -kInfinity, at::kFloat), sizes.heads, at::randn({6, 65, 40}), 1e-5);
}

}  // namespace
}  // namespace lockstep::ops
