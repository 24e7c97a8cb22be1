// Compares values and gradients with those of plain operations in float64. The twin (the plain ATen implementation) is
// tested on any machine, and the kernels are tested if there is a GPU.

#include "ops/norm/scaled_sum.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

class ScaledSumTest : public OpTest {
 protected:
  double tolerance() const {
    return dtype() == at::kFloat ? 1e-5 : dtype() == at::kHalf ? 2e-3 : 1e-2;
  }
};

at::Tensor Exact(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).requires_grad_();
}

// Compares the results for several shapes. In some shapes the last thread block has fewer rows than the others, and in
// some there are more rows than a grid processes at a time. A row fills one pack, several blocks, or a number of packs
// so small that a warp processes several rows; a row of 13 values does not consist of whole packs.
TEST_P(ScaledSumTest, IsTheSum) {
  const std::vector<std::vector<int64_t>> shapes = {{1, 8},        {7, 24},   {3, 5, 5, 96},
                                                    {40000, 96},   {9, 264},  {1000, 768},
                                                    {2, 3, 3, 13}, {11, 2048}};
  for (const std::vector<int64_t>& shape : shapes) {
    for (const at::ScalarType type : {at::kFloat, dtype()}) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(shape) << ", x " << type);
      const at::Tensor x = at::randn(shape, options(type)).requires_grad_();
      const at::Tensor branch = at::randn(shape, options()).requires_grad_();
      const at::Tensor scale = at::randn({shape.back()}, options(at::kFloat)).requires_grad_();
      EXPECT_EQ(HasScaledSumKernels(x, branch, scale), Is16BitOnGpu() && shape.back() % 8 == 0);
      const std::vector<at::Tensor> exact = {Exact(x), Exact(branch), Exact(scale)};
      const at::Tensor expected = exact[0] + exact[1] * exact[2];
      const auto [sum, rounded] = ScaledSum(x, branch, scale, /*rounds=*/true);
      EXPECT_EQ(sum.scalar_type(), at::kFloat);
      EXPECT_EQ(rounded.scalar_type(), dtype());
      EXPECT_TRUE(IsNear(sum, expected, 1e-5));
      EXPECT_TRUE(IsNear(rounded, expected, tolerance()));
      const at::Tensor d_sum = at::randn(shape, options(at::kFloat));
      const at::Tensor d_rounded = at::randn(shape, options());
      const auto compare = [&](const std::vector<at::Tensor>& results,
                               const std::vector<at::Tensor>& gradients, const at::Tensor& d) {
        const auto found = torch::autograd::grad(results, {x, branch, scale}, gradients,
                                                 /*retain_graph=*/true);
        const auto wanted = torch::autograd::grad({expected}, exact, {d.to(at::kDouble)},
                                                  /*retain_graph=*/true);
        EXPECT_EQ(found[0].scalar_type(), type);
        EXPECT_EQ(found[1].scalar_type(), dtype());
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_TRUE(IsNear(found[i], wanted[i], tolerance())) << "input " << i;
        }
      };
      compare({sum, rounded}, {d_sum, d_rounded},
              d_sum.to(at::kDouble) + d_rounded.to(at::kDouble));
      compare({sum}, {d_sum}, d_sum);
      compare({rounded}, {d_rounded}, d_rounded);
    }
  }
}

TEST_P(ScaledSumTest, TakesAnyLayout) {
  const at::Tensor x = at::randn({16, 6}, options(at::kFloat)).t();
  const at::Tensor branch = at::randn({16, 6}, options()).t();
  const at::Tensor scale = at::randn({32}, options(at::kFloat)).slice(0, 0, 32, 2);
  const auto [sum, rounded] = ScaledSum(x, branch, scale, /*rounds=*/true);
  EXPECT_TRUE(
      IsNear(sum, x.to(at::kDouble) + branch.to(at::kDouble) * scale.to(at::kDouble), 1e-5));
}

TEST_P(ScaledSumTest, GivesTheSameBits) {
  const at::Tensor x = at::randn({20000, 96}, options(at::kFloat)).requires_grad_();
  const at::Tensor branch = at::randn({20000, 96}, options()).requires_grad_();
  const at::Tensor scale = at::randn({96}, options(at::kFloat)).requires_grad_();
  const auto gradients = [&] {
    const auto [sum, rounded] = ScaledSum(x, branch, scale, /*rounds=*/true);
    return torch::autograd::grad({sum, rounded}, {branch, scale}, {x.detach(), branch.detach()});
  };
  const auto first = gradients();
  const auto second = gradients();
  EXPECT_TRUE(at::equal(first[0], second[0]));
  EXPECT_TRUE(at::equal(first[1], second[1]));
}

INSTANTIATE_TEST_SUITE_P(, ScaledSumTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
