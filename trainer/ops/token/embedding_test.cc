// The kernels against their twin: its bits forward, its gradients in float64 backward.

#include "trainer/ops/token/embedding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "trainer/ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

struct Case {
  int64_t count, length, width, vocabulary, positions;
};

class Embedding : public OpTest {
 protected:
  void TearDown() override { SetDeterministic(false); }
  static void SetDeterministic(bool deterministic) {
    at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  }
};

TEST_P(Embedding, IsTheTwin) {
  for (const Case& shape :
       {Case{1, 1, 3, 5, 1}, Case{4, 7, 3, 11, 9}, Case{64, 256, 384, 1000, 256},
        Case{3, 5, 384, 2, 8}, Case{37, 2, 130, 17, 40}, Case{0, 5, 384, 7, 8}}) {
    for (const bool deterministic : {false, true}) {
      SCOPED_TRACE(testing::Message() << shape.count << " x " << shape.length << " x "
                                      << shape.width << (deterministic ? ", deterministic" : ""));
      SetDeterministic(deterministic);
      const at::Tensor tokens =
          at::randint(shape.vocabulary, {shape.count, shape.length}, options(at::kLong));
      at::Tensor token_weight =
          at::randn({shape.vocabulary, shape.width}, options(at::kFloat)).requires_grad_();
      at::Tensor position_weight =
          at::randn({shape.positions, shape.width}, options(at::kFloat)).requires_grad_();
      const at::Tensor out =
          TokenAndPositionEmbedding(tokens, token_weight, position_weight, dtype());
      EXPECT_EQ(out.scalar_type(), dtype());
      EXPECT_TRUE(at::equal(
          out, TokenAndPositionEmbeddingTwin(tokens, token_weight, position_weight, dtype())));

      at::Tensor exact_token = token_weight.detach().to(at::kDouble).requires_grad_();
      at::Tensor exact_position = position_weight.detach().to(at::kDouble).requires_grad_();
      const at::Tensor d_out = at::randn(out.sizes(), options(dtype()));
      out.backward(d_out);
      TokenAndPositionEmbeddingTwin(tokens, exact_token, exact_position, at::kDouble)
          .backward(d_out.to(at::kDouble));
      EXPECT_EQ(token_weight.grad().scalar_type(), at::kFloat);
      EXPECT_TRUE(
          at::allclose(token_weight.grad().to(at::kDouble), exact_token.grad(), 1e-4, 1e-4));
      EXPECT_TRUE(
          at::allclose(position_weight.grad().to(at::kDouble), exact_position.grad(), 1e-4, 1e-4));
    }
  }
}

TEST_P(Embedding, TakesWeightsAtAnOddAddressAndAGradientWithGaps) {
  const at::Tensor tokens = at::randint(9, {5, 6}, options(at::kLong));
  const auto odd = [&](int64_t rows) {
    return at::randn({rows * 8 + 1}, options(at::kFloat)).narrow(0, 1, rows * 8).view({rows, 8});
  };
  const at::Tensor token_weight = odd(9).requires_grad_();
  const at::Tensor position_weight = odd(6).requires_grad_();
  const at::Tensor out = TokenAndPositionEmbedding(tokens, token_weight, position_weight, dtype());
  EXPECT_TRUE(at::equal(
      out, TokenAndPositionEmbeddingTwin(tokens, token_weight, position_weight, dtype())));
  out.backward(at::ones({8}, options(dtype())).expand({5, 6, 8}));
  EXPECT_TRUE(at::equal(position_weight.grad(), at::full({6, 8}, 5, options(at::kFloat))));
  EXPECT_EQ(token_weight.grad().sum().item<double>(), 5 * 6 * 8);
}

TEST_P(Embedding, AddsToTheGradientsThatAreThere) {
  const at::Tensor tokens = at::randint(9, {5, 6}, options(at::kLong));
  for (const int64_t width : {24, 33}) {
    for (const bool deterministic : {false, true}) {
      SetDeterministic(deterministic);
      const at::Tensor token_weight = at::randn({9, width}, options(at::kFloat)).requires_grad_();
      const at::Tensor position_weight =
          at::randn({8, width}, options(at::kFloat)).requires_grad_();
      const at::Tensor d_out = at::randn({5, 6, width}, options(dtype()));
      ExpectAddsToGradients(
          [&] {
            TokenAndPositionEmbedding(tokens, token_weight, position_weight, dtype())
                .backward(d_out);
          },
          {token_weight, position_weight});
    }
  }
}

TEST_P(Embedding, IsTheSameTwiceWhereDeterministic) {
  SetDeterministic(true);
  const at::Tensor tokens = at::randint(3, {32, 128}, options(at::kLong));
  const at::Tensor d_out = at::randn({32, 128, 384}, options(dtype()));
  const auto gradients = [&] {
    const at::Tensor token_weight = at::ones({50, 384}, options(at::kFloat)).requires_grad_();
    const at::Tensor position_weight = at::ones({128, 384}, options(at::kFloat)).requires_grad_();
    TokenAndPositionEmbedding(tokens, token_weight, position_weight, dtype()).backward(d_out);
    return std::pair(token_weight.grad(), position_weight.grad());
  };
  const auto first = gradients();
  const auto second = gradients();
  EXPECT_TRUE(at::equal(first.first, second.first));
  EXPECT_TRUE(at::equal(first.second, second.second));
}

TEST_P(Embedding, ATokenOutOfRangeIsNotANumberAndNobodys) {
  if (device() == at::kCPU) GTEST_SKIP() << "ATen throws on the CPU";
  for (const bool deterministic : {false, true}) {
    SetDeterministic(deterministic);
    const at::Tensor tokens = at::tensor(at::ArrayRef<int64_t>{1, -1, 4, 1, int64_t{1} << 40, 3},
                                         at::TensorOptions(at::kLong))
                                  .view({2, 3})
                                  .to(device());
    const at::Tensor token_weight = at::ones({4, 8}, options(at::kFloat)).requires_grad_();
    const at::Tensor position_weight = at::ones({3, 8}, options(at::kFloat)).requires_grad_();
    const at::Tensor out =
        TokenAndPositionEmbedding(tokens, token_weight, position_weight, dtype());
    EXPECT_TRUE(at::equal(out.isnan().all(-1), tokens.lt(0).logical_or(tokens.ge(4))));
    out.backward(at::ones_like(out));
    const at::Tensor counts =
        at::tensor(at::ArrayRef<float>{0, 2, 0, 1}, at::TensorOptions(at::kFloat)).to(device());
    EXPECT_TRUE(at::equal(token_weight.grad(), counts.unsqueeze(1).expand({4, 8})));
    EXPECT_TRUE(at::equal(position_weight.grad(), at::full({3, 8}, 2, options(at::kFloat))));
  }
}

INSTANTIATE_TEST_SUITE_P(, Embedding, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
