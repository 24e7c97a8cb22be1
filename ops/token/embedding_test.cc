// Compares the kernels with EmbeddingSumTwin() (the twin): forward must give the same bits, and the gradients are
// compared with those of the twin in float64.

#include "ops/token/embedding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <utility>
#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

// The number of rows of a weight, and the shape of the indices that point to these rows.
struct Addend {
  int64_t rows;
  std::vector<int64_t> indices;
  int64_t padding_index = -1;
};

struct Case {
  std::string name;
  int64_t width;
  std::vector<Addend> addends;
};

class Embedding : public OpTest {
 protected:
  void TearDown() override { SetDeterministic(false); }
  static void SetDeterministic(bool deterministic) {
    at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  }

  Embedded Make(const Addend& addend, int64_t width) const {
    return {.indices = at::randint(addend.rows, addend.indices, options(at::kLong)),
            .weight = at::randn({addend.rows, width}, options(at::kFloat)).requires_grad_(),
            .padding_index = addend.padding_index};
  }

  Embedded Positions(int64_t rows, int64_t length, int64_t width) const {
    return {.indices = at::arange(length, options(at::kLong)),
            .weight = at::randn({rows, width}, options(at::kFloat)).requires_grad_()};
  }
};

// Returns the addends in float64 on the CPU. (The addends are not kept on the GPU, because ATen's backward kernel for
// few indices has races.)
std::vector<Embedded> InFloat64(const std::vector<Embedded>& addends) {
  std::vector<Embedded> exact = addends;
  for (Embedded& addend : exact) {
    addend.indices = addend.indices.cpu();
    addend.weight =
        addend.weight.detach().cpu().to(at::kDouble).requires_grad_(addend.weight.requires_grad());
  }
  return exact;
}

TEST_P(Embedding, IsTheTwin) {
  const std::vector<Case> cases = {
      {"tokens", 8, {{11, {4, 7}}}},
      {"of odd width", 3, {{11, {4, 7}}, {9, {7}}}},
      {"as GPT-2", 384, {{1000, {64, 256}}, {256, {256}}}},
      {"as BERT", 256, {{500, {70, 33}, 0}, {2, {70, 33}}, {40, {1, 33}}}},
      {"of few rows", 384, {{2, {3, 5}}, {8, {3, 5}}}},
      {"four", 130, {{17, {37, 2}}, {5, {37, 1}}, {3, {1, 2}, 1}, {1, {1}}}},
      {"in one dimension", 16, {{7, {300}}}},
      {"in three", 12, {{7, {2, 3, 5}}, {4, {3, 1}}}},
      {"of one index", 4, {{7, {}}}},
      {"of none", 384, {{7, {0, 5}}, {8, {5}}}},
      {"of no length", 4, {{7, {5, 0}}}},
      {"five, for which there is no kernel", 4, {{2, {3}}, {2, {3}}, {2, {3}}, {2, {3}}, {2, {3}}}},
  };
  for (const Case& of : cases) {
    for (const bool deterministic : {false, true}) {
      SCOPED_TRACE(of.name + (deterministic ? ", deterministic" : ""));
      SetDeterministic(deterministic);
      std::vector<Embedded> addends;
      for (const Addend& addend : of.addends) addends.push_back(Make(addend, of.width));
      const at::Tensor out = EmbeddingSum(addends, dtype());
      EXPECT_EQ(out.scalar_type(), dtype());
      EXPECT_TRUE(at::equal(out, EmbeddingSumTwin(addends, dtype())));

      const std::vector<Embedded> exact = InFloat64(addends);
      const at::Tensor d_out = at::randn(out.sizes(), options(dtype()));
      out.backward(d_out);
      EmbeddingSumTwin(exact, at::kDouble).backward(d_out.cpu().to(at::kDouble));
      for (size_t i = 0; i < addends.size(); ++i) {
        const at::Tensor& gradient = addends[i].weight.grad();
        EXPECT_EQ(gradient.scalar_type(), at::kFloat);
        EXPECT_TRUE(
            at::allclose(gradient.cpu().to(at::kDouble), exact[i].weight.grad(), 1e-4, 1e-4))
            << "of addend " << i;
      }
    }
  }
}

TEST_P(Embedding, GivesNoGradientToAFrozenWeight) {
  std::vector<Embedded> addends = {Make({9, {5, 6}}, 8), Make({4, {6}}, 8)};
  addends[0].weight.requires_grad_(false);
  for (const bool deterministic : {false, true}) {
    SetDeterministic(deterministic);
    addends[1].weight.mutable_grad() = at::Tensor();
    EmbeddingSum(addends, dtype()).sum().backward();
    EXPECT_FALSE(addends[0].weight.grad().defined());
    EXPECT_EQ(addends[1].weight.grad().sum().item<double>(), 5 * 6 * 8);
  }
}

TEST_P(Embedding, TakesWeightsAtAnOddAddressAndAGradientWithGaps) {
  const auto odd = [&](int64_t rows) {
    return at::randn({rows * 8 + 1}, options(at::kFloat)).narrow(0, 1, rows * 8).view({rows, 8});
  };
  std::vector<Embedded> addends = {Make({9, {5, 6}}, 8), Positions(6, 6, 8)};
  addends[0].weight = odd(9).requires_grad_();
  addends[1].weight = odd(6).requires_grad_();
  const at::Tensor out = EmbeddingSum(addends, dtype());
  EXPECT_TRUE(at::equal(out, EmbeddingSumTwin(addends, dtype())));
  out.backward(at::ones({8}, options(dtype())).expand({5, 6, 8}));
  EXPECT_TRUE(at::equal(addends[1].weight.grad(), at::full({6, 8}, 5, options(at::kFloat))));
  EXPECT_EQ(addends[0].weight.grad().sum().item<double>(), 5 * 6 * 8);
}

TEST_P(Embedding, AddsToTheGradientsThatAreThere) {
  for (const int64_t width : {24, 33}) {
    for (const bool deterministic : {false, true}) {
      SetDeterministic(deterministic);
      const std::vector<Embedded> addends = {Make({9, {5, 6}}, width), Positions(8, 6, width)};
      const at::Tensor d_out = at::randn({5, 6, width}, options(dtype()));
      ExpectAddsToGradients([&] { EmbeddingSum(addends, dtype()).backward(d_out); },
                            {addends[0].weight, addends[1].weight});
    }
  }
}

TEST_P(Embedding, IsTheSameTwiceWhereDeterministic) {
  SetDeterministic(true);
  std::vector<Embedded> addends = {Make({3, {32, 128}}, 384), Positions(128, 128, 384)};
  const at::Tensor d_out = at::randn({32, 128, 384}, options(dtype()));
  const auto gradients = [&] {
    for (Embedded& addend : addends) addend.weight = addend.weight.detach().requires_grad_();
    EmbeddingSum(addends, dtype()).backward(d_out);
    return std::pair(addends[0].weight.grad(), addends[1].weight.grad());
  };
  const auto first = gradients();
  const auto second = gradients();
  EXPECT_TRUE(at::equal(first.first, second.first));
  EXPECT_TRUE(at::equal(first.second, second.second));
}

TEST_P(Embedding, AnIndexOutOfRangeIsNotANumberAndNobodys) {
  if (device() == at::kCPU) GTEST_SKIP() << "ATen throws on the CPU";
  for (const bool deterministic : {false, true}) {
    SetDeterministic(deterministic);
    const at::Tensor tokens = at::tensor(at::ArrayRef<int64_t>{1, -1, 4, 1, int64_t{1} << 40, 3},
                                         at::TensorOptions(at::kLong))
                                  .view({2, 3})
                                  .to(device());
    const Embedded positions = Positions(3, 3, 8);
    const at::Tensor weight = at::ones({4, 8}, options(at::kFloat)).requires_grad_();
    const at::Tensor out =
        EmbeddingSum({{.indices = tokens, .weight = weight}, positions}, dtype());
    EXPECT_TRUE(at::equal(out.isnan().all(-1), tokens.lt(0).logical_or(tokens.ge(4))));
    out.backward(at::ones_like(out));
    const at::Tensor counts =
        at::tensor(at::ArrayRef<float>{0, 2, 0, 1}, at::TensorOptions(at::kFloat)).to(device());
    EXPECT_TRUE(at::equal(weight.grad(), counts.unsqueeze(1).expand({4, 8})));
    EXPECT_TRUE(at::equal(positions.weight.grad(), at::full({3, 8}, 2, options(at::kFloat))));
  }
}

TEST_P(Embedding, HasSecondDerivatives) {
  const std::vector<Embedded> addends = {Make({9, {5, 6}, 2}, 8), Positions(8, 6, 8)};
  const std::vector<Embedded> exact = InFloat64(addends);
  const at::Tensor scale = at::randn({5, 6, 8}, options(at::kFloat)).requires_grad_();
  const at::Tensor exact_scale = scale.detach().cpu().to(at::kDouble).requires_grad_();
  // Returns a second derivative: multiplies `out` by `by`, adds up the squares of the gradients of the two weights, and
  // returns the gradient of this sum with respect to `by`.
  const auto second = [](const at::Tensor& out, const at::Tensor& by,
                         const std::vector<Embedded>& of) {
    const std::vector<at::Tensor> gradients =
        torch::autograd::grad({(out.to(by.scalar_type()) * by).sum()}, {of[0].weight, of[1].weight},
                              {}, true, /*create_graph=*/true);
    return torch::autograd::grad({gradients[0].square().sum() + gradients[1].square().sum()},
                                 {by})[0];
  };
  const at::Tensor found = second(EmbeddingSum(addends, at::kFloat), scale, addends);
  const at::Tensor wanted = second(EmbeddingSumTwin(exact, at::kDouble), exact_scale, exact);
  EXPECT_TRUE(at::allclose(found.cpu().to(at::kDouble), wanted, 1e-4, 1e-4));
}

INSTANTIATE_TEST_SUITE_P(, Embedding, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
