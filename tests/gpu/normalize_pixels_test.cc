// Compares the CUDA kernel of NormalizePixels() with its twin, which is the plain ATen implementation that serves as
// reference.

#include "ops/pixels/normalize_pixels.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>

namespace lockstep::ops {
namespace {

at::Tensor RandomPixels(at::IntArrayRef shape) { return at::randint(0, 256, shape, at::kByte); }

TEST(NormalizePixelsTwin, IsTheFormula) {
  const at::Tensor pixels = RandomPixels({3, 2, 5, 7});
  const at::Tensor scale = at::tensor({0.5F, -2.0F});
  const at::Tensor shift = at::tensor({1.0F, 3.0F});
  const at::Tensor out = NormalizePixels(pixels, scale, shift, at::kFloat);
  for (int64_t channel = 0; channel < 2; ++channel) {
    const at::Tensor expected =
        pixels.select(1, channel).to(at::kFloat) * scale[channel] + shift[channel];
    EXPECT_TRUE(at::allclose(out.select(1, channel), expected));
  }
}

class NormalizePixels : public testing::TestWithParam<at::ScalarType> {};

TEST_P(NormalizePixels, TheKernelIsTheTwin) {
  if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
  const at::ScalarType dtype = GetParam();
  // The kernel rounds once (fused multiply-add), and the twin rounds twice. A 16-bit result may therefore differ by one
  // unit in the last place.
  const double tolerance = dtype == at::kFloat ? 1e-6 : (dtype == at::kHalf ? 0x1p-10 : 0x1p-7);
  for (const auto& [count, channels, height, width] : {std::array<int64_t, 4>{1, 1, 28, 28},
                                                       {7, 3, 32, 32},
                                                       {333, 1, 8, 8},
                                                       {5, 3, 7, 9},
                                                       {2, 24, 5, 5},
                                                       {1, 1, 1, 1},
                                                       {64, 3, 224, 224}}) {
    at::Tensor pixels = RandomPixels({count + 1, channels, height, width}).cuda();
    // The factors of the channels may lie apart.
    const at::Tensor scale = at::randn({channels, 2}).cuda().select(1, 0);
    const at::Tensor shift = at::randn({2, channels}).cuda()[1];
    // A batch that begins at sample 0 is aligned. A batch that begins at sample 1 is unaligned if a sample has an odd
    // number of bytes.
    for (const int64_t first : {0, 1}) {
      for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
        const at::Tensor part = pixels.contiguous(format).narrow(0, first, count);
        const at::Tensor out = ops::NormalizePixels(part, scale, shift, dtype);
        EXPECT_EQ(out.scalar_type(), dtype);
        EXPECT_EQ(out.sizes(), part.sizes());
        EXPECT_EQ(out.strides(), part.strides());
        EXPECT_TRUE(
            at::allclose(out, NormalizePixelsTwin(part, scale, shift, dtype), tolerance, 1e-5));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, NormalizePixels, testing::Values(at::kFloat, at::kHalf, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace lockstep::ops
