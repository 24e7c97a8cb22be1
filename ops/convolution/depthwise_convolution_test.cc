// Compares values and gradients with those of PyTorch's convolution in float64. The twin (the plain ATen
// implementation) is tested on any machine, and the kernels are tested if there is a GPU.

#include "ops/convolution/depthwise_convolution.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

class DepthwiseConvolutionTest : public OpTest {
 protected:
  double tolerance() const {
    return dtype() == at::kFloat ? 1e-5 : dtype() == at::kHalf ? 4e-3 : 1.6e-2;
  }
  at::Tensor Images(at::IntArrayRef sizes) const {
    return at::randn(sizes, options()).contiguous(kLast).requires_grad_();
  }
  // Returns a random weight: in float32 for the kernels, and in x's type for the twin, which needs this type.
  at::Tensor Weight(int64_t channels, int64_t size) const {
    const at::ScalarType type = Is16BitOnGpu() ? at::kFloat : dtype();
    return (at::randn({channels, 1, size, size}, options(at::kFloat)) / static_cast<double>(size))
        .to(type)
        .requires_grad_();
  }
  at::Tensor Bias(int64_t channels) const {
    return at::randn({channels}, options(Is16BitOnGpu() ? at::kFloat : dtype())).requires_grad_();
  }
};

at::Tensor Exact(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).requires_grad_();
}

// Compares the results for several shapes. The channels fill one pack, a block, or blocks that are narrower than a
// cache line; 3 channels are no whole pack. Some rows have fewer pixels than a thread computes, some have as many as a
// block computes, and some have more. Some images are smaller than the window.
TEST_P(DepthwiseConvolutionTest, IsPyTorchs) {
  const std::vector<std::vector<int64_t>> images = {
      {2, 8, 7, 7},     {3, 24, 5, 9},   {1, 72, 2, 3}, {2, 16, 56, 57},
      {1, 136, 33, 14}, {5, 96, 14, 14}, {2, 3, 6, 6}};
  for (const std::vector<int64_t>& sizes : images) {
    for (const int64_t size : {3, 5, 7}) {
      for (const int64_t stride : {1, 2}) {
        for (const int64_t padding : {int64_t{0}, int64_t{1}, size / 2, size - 1}) {
          if (std::min(sizes[2], sizes[3]) + 2 * padding < size) continue;
          SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << ", size " << size
                                          << ", stride " << stride << ", padding " << padding);
          const at::Tensor x = Images(sizes);
          const at::Tensor weight = Weight(sizes[1], size);
          // About half of the cases have a bias.
          const bool adds = (sizes[1] / 8 + size / 2 + stride + padding) % 2 == 0;
          const at::Tensor bias = adds ? Bias(sizes[1]) : at::Tensor();
          const at::Tensor exact_x = Exact(x);
          const at::Tensor exact_weight = Exact(weight);
          const at::Tensor exact_bias = adds ? Exact(bias) : at::Tensor();
          const at::Tensor expected =
              DepthwiseConvolutionTwin(exact_x, exact_weight, exact_bias, stride, padding);
          const at::Tensor dy = at::randn(expected.sizes(), options()).contiguous(kLast);
          expected.backward(dy.to(at::kDouble));
          const bool is_fused = HasDepthwiseKernels(x, weight, stride, padding);
          EXPECT_EQ(is_fused, Is16BitOnGpu() && sizes[1] % 8 == 0);
          if (Is16BitOnGpu() && !is_fused) continue;  // the twin would need a 16-bit weight
          const at::Tensor y = DepthwiseConvolution(x, weight, bias, stride, padding);
          EXPECT_EQ(y.scalar_type(), dtype());
          y.backward(dy);
          EXPECT_TRUE(IsNear(y, expected, tolerance()));
          // On a CPU without AVX-512 PyTorch adds up the products of a window in 16 bits.
          const bool is_rough =
              x.is_cpu() && dtype() != at::kFloat && !__builtin_cpu_supports("avx512bw");
          EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(),
                             is_rough ? tolerance() * static_cast<double>(size) : tolerance()));
          const double sum_tolerance = is_fused ? 1e-4 : 2 * tolerance();
          EXPECT_TRUE(IsNear(weight.grad(), exact_weight.grad(), sum_tolerance));
          if (adds) {
            EXPECT_TRUE(IsNear(bias.grad(), exact_bias.grad(), sum_tolerance));
          }
        }
      }
    }
  }
}

TEST_P(DepthwiseConvolutionTest, TakesAnyLayoutAndAddress) {
  const at::Tensor weight = Weight(16, 3).detach();
  const at::Tensor x = Images({2, 16, 9, 9}).detach();
  const at::Tensor expected = DepthwiseConvolution(x, weight, {}, 1, 1);
  const at::Tensor apart = at::empty({x.numel() + 1}, options()).narrow(0, 1, x.numel());
  const at::Tensor moved = apart.view({2, 9, 9, 16}).permute({0, 3, 1, 2}).copy_(x);
  for (const at::Tensor& y : {DepthwiseConvolution(moved, weight, {}, 1, 1),
                              DepthwiseConvolution(x.contiguous(), weight, {}, 1, 1),
                              DepthwiseConvolution(x, weight.contiguous(kLast), {}, 1, 1)}) {
    EXPECT_TRUE(IsNear(y, expected.to(at::kDouble), tolerance()));
  }
}

TEST_P(DepthwiseConvolutionTest, AddsToTheGradient) {
  if (!Is16BitOnGpu()) GTEST_SKIP() << "PyTorch's gradients: only kernels add to .grad themselves";
  const at::Tensor x = Images({2, 24, 9, 9});
  const at::Tensor bias = Bias(24);
  for (const int64_t size : {5, 7}) {
    const at::Tensor weight = Weight(24, size);
    const at::Tensor dy = at::randn({2, 24, 9, 9}, options());
    ExpectAddsToGradients([&] { DepthwiseConvolution(x, weight, bias, 1, size / 2).backward(dy); },
                          {weight, bias});
  }
}

TEST_P(DepthwiseConvolutionTest, GivesTheSameBits) {
  const at::Tensor x = Images({8, 40, 28, 28});
  for (const int64_t size : {5, 7}) {
    const at::Tensor weight = Weight(40, size);
    const auto gradients = [&] {
      const at::Tensor y = DepthwiseConvolution(x, weight, {}, size == 5 ? 2 : 1, 2);
      return torch::autograd::grad({y}, {x, weight}, {y.detach()});
    };
    const auto first = gradients();
    const auto second = gradients();
    EXPECT_TRUE(at::equal(first[0], second[0]));
    EXPECT_TRUE(at::equal(first[1], second[1]));
  }
}

INSTANTIATE_TEST_SUITE_P(, DepthwiseConvolutionTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
