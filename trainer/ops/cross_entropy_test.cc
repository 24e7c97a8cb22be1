// Loss and gradient against PyTorch's cross-entropy: the twin everywhere, the kernels where there is a GPU.

#include "trainer/ops/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

namespace lockstep::ops {
namespace {

struct Case {
  int64_t rows, columns, classes;
};

class CrossEntropy : public testing::TestWithParam<std::tuple<at::DeviceType, at::ScalarType>> {
 protected:
  void SetUp() override {
    if (device() == at::kCUDA && at::cuda::device_count() == 0) {
      GTEST_SKIP() << "needs a GPU; this machine has none";
    }
  }
  at::DeviceType device() const { return std::get<0>(GetParam()); }
  at::ScalarType dtype() const { return std::get<1>(GetParam()); }
  at::TensorOptions options() const { return at::TensorOptions(device()).dtype(dtype()); }
};

TEST_P(CrossEntropy, IsPyTorchs) {
  const double tolerance = dtype() == at::kFloat ? 1e-4 : dtype() == at::kHalf ? 2e-3 : 2e-2;
  for (const Case& shape : {Case{1, 1, 1}, Case{5, 10, 10}, Case{33, 1000, 1000}, Case{7, 513, 513},
                            Case{64, 50304, 50257}, Case{3, 16, 9}}) {
    for (const double smoothing : {0.0, 0.1}) {
      at::Tensor logits = (3 * at::randn({shape.rows, shape.columns}, options())).requires_grad_();
      const at::Tensor target =
          at::randint(shape.classes, {shape.rows}, at::TensorOptions(device()).dtype(at::kLong));
      at::Tensor exact = logits.detach().to(at::kDouble).requires_grad_();
      const at::Tensor expected =
          at::cross_entropy_loss(exact.narrow(1, 0, shape.classes), target, {}, at::Reduction::Sum,
                                 /*ignore_index=*/-100, smoothing);
      expected.backward(at::full({}, 0.25, exact.options()));

      // A copy: the gradient is written over the logits.
      const at::Tensor copy = logits.clone();
      const at::Tensor loss = CrossEntropySum(copy, target, shape.classes, smoothing);
      EXPECT_EQ(loss.scalar_type(), at::kFloat);
      EXPECT_TRUE(at::allclose(loss.to(at::kDouble), expected, 1e-5, 1e-5)) << loss << expected;
      loss.backward(at::full({}, 0.25, loss.options()));
      EXPECT_TRUE(
          at::allclose(logits.grad().to(at::kDouble), exact.grad(), tolerance, tolerance * 1e-2));
      const at::Tensor padding =
          logits.grad().narrow(1, shape.classes, shape.columns - shape.classes);
      EXPECT_EQ(padding.abs().sum().item<double>(), 0);
    }
  }
}

TEST_P(CrossEntropy, SurvivesLargeLogitsAndAnOddAddress) {
  const at::Tensor memory = at::full({3 * 17 + 1}, dtype() == at::kHalf ? 6e4 : 1e30, options());
  const at::Tensor logits = memory.narrow(0, 1, 3 * 17).view({3, 17});
  const at::Tensor target = at::zeros({3}, at::TensorOptions(device()).dtype(at::kLong));
  const at::Tensor loss = CrossEntropySum(logits, target, 17, 0);
  EXPECT_NEAR(loss.item<double>(), 3 * std::log(17.0), 1e-3);
}

TEST_P(CrossEntropy, ATargetOutOfRangeIsNotANumber) {
  if (device() == at::kCPU) GTEST_SKIP() << "ATen throws on the CPU";
  const at::Tensor logits = at::zeros({2, 4}, options());
  const at::Tensor target = at::full({2}, 4, at::TensorOptions(device()).dtype(at::kLong));
  EXPECT_TRUE(std::isnan(CrossEntropySum(logits, target, 4, 0).item<double>()));
}

INSTANTIATE_TEST_SUITE_P(, CrossEntropy,
                         testing::Combine(testing::Values(at::kCPU, at::kCUDA),
                                          testing::Values(at::kFloat, at::kHalf, at::kBFloat16)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param) == at::kCUDA ? "Gpu"
                                                                                    : "Cpu") +
                                  c10::toString(std::get<1>(param.param));
                         });

}  // namespace
}  // namespace lockstep::ops
