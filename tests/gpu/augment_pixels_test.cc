// Compares the CUDA kernels for augmentation with their twin, which is the plain ATen implementation that serves as
// reference.

#include "ops/pixels/augment_pixels.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "data/feed/augment.h"

namespace lockstep::ops {
namespace {

struct Shape {
  int64_t count, channels, height, width;
};

constexpr AugmentOptions kColours{
    .brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.5, .seed = 5};

class AugmentPixels : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
    at::manual_seed(1);
  }

  // Compares the kernels with their twin for both memory formats, and for a batch that begins at sample 0 and one that
  // begins at sample 1. The bytes of the second batch may be unaligned.
  void ExpectTheTwin(const Shape& shape, const at::Tensor& draws) {
    const at::Tensor pixels =
        at::randint(0, 256, {shape.count + 1, shape.channels, shape.height, shape.width}, at::kByte)
            .cuda();
    // Sample 0 is grey, so it has no hue, and the difference between its greatest and its smallest channel is 0.
    pixels[0].fill_(77);
    // The factors of the channels may lie apart.
    const at::Tensor scale = at::rand({shape.channels, 2}).add(0.5).div(255).cuda().select(1, 0);
    const at::Tensor shift = at::randn({shape.channels, 3}).cuda().select(1, 2);
    for (const int64_t first : {0, 1}) {
      for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
        const at::Tensor part = pixels.contiguous(format).narrow(0, first, shape.count);
        const at::Tensor out = ops::AugmentPixels(part, draws, scale, shift, GetParam());
        EXPECT_EQ(out.scalar_type(), GetParam());
        EXPECT_EQ(out.strides(), part.strides());
        const at::Tensor expected = AugmentPixelsTwin(part, draws, scale, shift, GetParam());
        // The kernels and the twin add in different orders, so sums differ in their last bits. A 16-bit result may
        // therefore differ by one unit in the last place.
        const double spacing = GetParam() == at::kFloat  ? 0
                               : GetParam() == at::kHalf ? 0x1p-10
                                                         : 0x1p-7;
        EXPECT_TRUE(at::allclose(out, expected, spacing, 2e-5))
            << shape.count << " x " << shape.channels << " x " << shape.height << " x "
            << shape.width << " from " << first << ", " << format << ": off by "
            << (out.to(at::kFloat) - expected.to(at::kFloat)).abs().max().item<float>();
      }
    }
  }
};

at::Tensor DrawsFor(const AugmentOptions& options, const Shape& shape) {
  const at::Tensor draws = EmptyDraws(options, shape.count, at::kCPU);
  for (int64_t n = 0; n < shape.count; ++n) {
    DrawAugmentation(options, {.width = shape.width, .height = shape.height}, /*epoch=*/0, n,
                     draws[n].mutable_data_ptr<float>());
  }
  return draws.cuda();
}

constexpr std::array<Shape, 6> kShapes{{{3, 3, 1, 1},
                                        {2, 3, 7, 5},
                                        {5, 3, 32, 32},
                                        {3, 3, 224, 224},
                                        {2, 3, 333, 333},
                                        {333, 3, 8, 8}}};

TEST_P(AugmentPixels, EachOperationAlone) {
  for (const Shape& shape : kShapes) {
    for (double AugmentOptions::*const operation :
         {&AugmentOptions::brightness, &AugmentOptions::contrast, &AugmentOptions::saturation,
          &AugmentOptions::hue}) {
      AugmentOptions options{.seed = 3};
      options.*operation = 0.5;
      ExpectTheTwin(shape, DrawsFor(options, shape));
    }
  }
}

TEST_P(AugmentPixels, EveryOrder) {
  const Shape shape{24, 3, 31, 17};
  const at::Tensor draws = DrawsFor(kColours, shape).cpu();
  std::array<float, kColourOperations> order{0, 1, 2, 3};
  for (int64_t n = 0; n < shape.count; ++n) {
    draws[n].narrow(0, kOrder, kColourOperations).copy_(at::tensor(order));
    std::next_permutation(order.begin(), order.end());
  }
  ExpectTheTwin(shape, draws.cuda());
}

TEST_P(AugmentPixels, MixturesWithAndWithoutColours) {
  for (const int64_t channels : {1, 3, 4}) {
    for (const int64_t count : {1, 2, 333}) {
      for (const Shape& shape : {Shape{count, channels, 7, 5}, Shape{count, channels, 32, 32}}) {
        AugmentOptions options = channels == 3 ? kColours : AugmentOptions{.seed = 5};
        options.mixup = 0.8;
        ExpectTheTwin(shape, DrawsFor(options, shape));
        options.mixup = 0;
        // The seeds 5 to 8 draw different boxes.
        for (options.cutmix = 1; options.seed < 9; ++options.seed) {
          ExpectTheTwin(shape, DrawsFor(options, shape));
        }
      }
    }
  }
}

TEST_P(AugmentPixels, AnEmptyMicroBatch) {
  const at::Tensor pixels = at::empty({0, 3, 8, 8}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  const at::Tensor draws = at::empty({0, kAugmentDraws}, at::kCUDA);
  const at::Tensor ones = at::ones({3}, at::kCUDA);
  EXPECT_EQ(ops::AugmentPixels(pixels, draws, ones, ones, GetParam()).numel(), 0);
}

INSTANTIATE_TEST_SUITE_P(, AugmentPixels, testing::Values(at::kFloat, at::kHalf, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace lockstep::ops
