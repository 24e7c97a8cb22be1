// Compares values and gradients with those of PyTorch's convolution in float64.

#include "ops/convolution/stem_convolution.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "ops/testing/convolution_op_test.h"
#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

struct Case {
  std::vector<int64_t> sizes;  // the sizes of the images
  int64_t outputs;
};

// Some of the cases have kernels, and the others do not. The kernels for the matrix products support 64 outputs and
// images of 3 or 4 channels. The kernel for the weight's gradient also needs images of more than two rows of pixels.
const Case kCases[] = {{{2, 3, 32, 32}, 8},  {{1, 1, 8, 6}, 8},      {{3, 4, 10, 24}, 8},
                       {{2, 5, 2, 2}, 8},    {{2, 3, 15, 16}, 8},    {{2, 3, 224, 224}, 8},
                       {{1, 7, 6, 70}, 8},   {{2, 3, 224, 224}, 64}, {{1, 3, 32, 34}, 64},
                       {{5, 3, 18, 22}, 64}, {{3, 4, 20, 36}, 64},   {{300, 3, 8, 8}, 64},
                       {{700, 3, 4, 4}, 64}, {{2, 3, 12, 226}, 64},  {{1, 4, 8, 474}, 64},
                       {{2, 3, 2, 40}, 64},  {{2, 5, 10, 12}, 64},   {{1, 1, 10, 12}, 64}};

class StemConvolutionTest : public ConvolutionOpTest {
 protected:
  bool HasKernel() const {
    return Is16BitOnGpu() && at::cuda::getCurrentDeviceProperties()->major >= 8;
  }
  at::Tensor WeightOf(const Case& of, at::MemoryFormat format) const {
    return Weight({of.outputs, of.sizes[1], 7, 7}, format);
  }
  at::Tensor Run(const at::Tensor& x, const at::Tensor& weight) const {
    return StemConvolution(x, Passed(weight));
  }
  at::Tensor RunOfSquares(const at::Tensor& x, const at::Tensor& weight) const {
    return StemConvolutionOfSquares(x, weight.to(dtype()));
  }
};

TEST_P(StemConvolutionTest, IsPyTorchs) {
  for (const Case& of : kCases) {
    if (of.outputs == 64 && !Is16BitOnGpu()) continue;
    const bool is_even = of.sizes[2] % 2 == 0 && of.sizes[3] % 2 == 0;
    for (const bool of_squares : {false, true}) {
      if (!is_even && of_squares) continue;
      for (const auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
        SCOPED_TRACE(testing::Message()
                     << at::IntArrayRef(of.sizes) << " to " << of.outputs << ", " << format);
        const at::Tensor x = at::randn(of.sizes, options()).contiguous(format).requires_grad_();
        const at::Tensor weight = WeightOf(of, format);
        const at::Tensor exact_x = x.detach().to(at::kDouble).requires_grad_();
        const at::Tensor exact_weight = weight.detach().to(at::kDouble).requires_grad_();
        const at::Tensor expected = StemConvolutionTwin(exact_x, exact_weight);
        const at::Tensor y = of_squares ? RunOfSquares(x, weight) : Run(x, weight);
        EXPECT_EQ(y.scalar_type(), dtype());
        EXPECT_TRUE(IsNear(y, expected, tolerance()));
        const at::Tensor dy = at::randn(expected.sizes(), options());
        y.backward(dy);
        expected.backward(dy.to(at::kDouble));
        EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), tolerance()));
        EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
        EXPECT_TRUE(IsNear(weight.grad(), exact_weight.grad(), tolerance()));
      }
    }
  }
}

// Compares the weight's gradient, which is not rounded to 16 bits, with a smaller tolerance, which also finds small
// errors.
TEST_P(StemConvolutionTest, SumsTheWeightsGradientInFloat32) {
  if (!HasKernel()) GTEST_SKIP() << "the kernel is for 16 bits, on GPUs since Ampere";
  for (const Case& of : kCases) {
    if (of.outputs != 64 || of.sizes[1] < 3 || of.sizes[1] > 4 || of.sizes[2] < 4) continue;
    SCOPED_TRACE(at::IntArrayRef(of.sizes));
    const at::Tensor x = Images(of.sizes);
    const at::Tensor weight = WeightOf(of, at::MemoryFormat::ChannelsLast);
    const at::Tensor exact_weight = weight.detach().to(at::kDouble).requires_grad_();
    const at::Tensor expected = StemConvolutionTwin(x.to(at::kDouble), exact_weight);
    const at::Tensor dy = Images(expected.sizes());
    Run(x, weight).backward(dy);
    expected.backward(dy.to(at::kDouble));
    EXPECT_TRUE(IsNear(weight.grad(), exact_weight.grad(), 1e-4));
  }
}

TEST_P(StemConvolutionTest, TakesGradientsThatAreNotAligned) {
  const Case of{{3, 3, 20, 36}, 64};
  const at::Tensor x = Images(of.sizes);
  const at::Tensor weight = WeightOf(of, at::MemoryFormat::ChannelsLast);
  const at::Tensor y = Run(x, weight);
  const at::Tensor dy = at::randn({y.numel() + 1}, options())
                            .narrow(0, 1, y.numel())
                            .view({y.size(0), y.size(2), y.size(3), y.size(1)})
                            .permute({0, 3, 1, 2});
  const auto gradient = [&](const at::Tensor& of_y) {
    return torch::autograd::grad({y}, {weight}, {of_y}, /*retain_graph=*/true)[0];
  };
  EXPECT_TRUE(IsNear(gradient(dy), gradient(dy.clone()).to(at::kDouble), tolerance()));
}

TEST_P(StemConvolutionTest, TakesImagesOfAnyStride) {
  const at::NoGradGuard no_gradients;
  const at::Tensor images = at::randn({4, 6, 34, 44}, options());
  const at::Tensor weight = WeightOf({{4, 3, 32, 40}, 64}, at::MemoryFormat::Contiguous);
  for (const bool other_counts : {false, true}) {
    for (const bool other_channels : {false, true}) {
      for (const int64_t column : {0, 1, 2}) {
        for (const int64_t more : {0, 1}) {
          SCOPED_TRACE(testing::Message() << other_counts << other_channels << column << more);
          // In some cases all rows, or every second row, begin at an odd index of the storage, so that two adjacent
          // pixels do not form an aligned 32-bit word.
          const at::Tensor rows = more == 0 ? images : images.narrow(3, 0, 43).contiguous();
          const at::Tensor x = rows.slice(0, 0, 4, other_counts ? 2 : 1)
                                   .slice(1, 0, other_channels ? 6 : 3, other_channels ? 2 : 1)
                                   .narrow(2, 1, 32)
                                   .narrow(3, column, 40);
          EXPECT_TRUE(at::equal(Run(x, weight), Run(x.contiguous(), weight)));
        }
      }
    }
  }
}

TEST_P(StemConvolutionTest, GivesTheSameBitsEachTime) {
  if (!HasKernel()) GTEST_SKIP() << "the kernel is for 16 bits, on GPUs since Ampere";
  const Case of{{40, 3, 64, 64}, 64};
  const at::Tensor x = Images(of.sizes);
  const at::Tensor weight = WeightOf(of, at::MemoryFormat::ChannelsLast);
  const at::Tensor y = Run(x, weight);
  const at::Tensor dy = Images(y.sizes());
  const auto gradient = [&] {
    return torch::autograd::grad({y}, {weight}, {dy}, /*retain_graph=*/true)[0];
  };
  const at::Tensor first = gradient();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(Run(x, weight), y));
    EXPECT_TRUE(at::equal(gradient(), first));
  }
}

TEST_P(StemConvolutionTest, AddsToTheGradientThatIsThere) {
  const Case of{{5, 3, 18, 22}, 64};
  const at::Tensor x = Images(of.sizes);
  const at::Tensor dy = Images({5, 64, 9, 11});
  for (const auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
    const at::Tensor weight = WeightOf(of, format);
    ExpectAddsToGradients([&] { Run(x, weight).backward(dy); }, {weight});
  }
}

TEST_P(StemConvolutionTest, ComputesOnlyTheGradientsAskedFor) {
  const Case of{{5, 3, 18, 22}, 64};
  const at::Tensor x = Images(of.sizes);
  const at::Tensor weight = WeightOf(of, at::MemoryFormat::ChannelsLast);
  Run(x, weight).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
  const at::Tensor frozen = weight.detach();
  const at::Tensor input = x.detach().requires_grad_();
  Run(input, frozen).sum().backward();
  EXPECT_TRUE(input.grad().defined());
  EXPECT_FALSE(frozen.grad().defined());
}

TEST_P(StemConvolutionTest, SaysWhatDoesNotFit) {
  const at::Tensor weight = WeightOf({{5, 3, 18, 22}, 64}, at::MemoryFormat::ChannelsLast);
  EXPECT_THROW(Run(Images({5, 4, 18, 22}), weight), c10::Error);
  EXPECT_THROW(Run(Images({5, 3, 18, 22}), weight.select(0, 0)), c10::Error);
}

// Checks that StemConvolution() computes windows of 3x3, which the kernels do not support, as an ordinary convolution.
TEST_P(StemConvolutionTest, OtherWindowsAreConvolutions) {
  const at::Tensor x = Images({5, 3, 18, 22});
  const at::Tensor weight = at::randn({64, 3, 3, 3}, options(at::kFloat)).to(dtype());
  const at::Tensor expected =
      at::conv2d(x.to(at::kDouble), weight.to(at::kDouble), {}, /*stride=*/2, /*padding=*/3);
  EXPECT_TRUE(IsNear(StemConvolution(x, Passed(weight.to(at::kFloat))), expected, tolerance()));
}

INSTANTIATE_TEST_SUITE_P(, StemConvolutionTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
