// Compares AugmentPixelsTwin(), which runs on the CPU, with numbers from torchvision. tests/gpu/augment_pixels_test.cc
// compares the kernels with AugmentPixelsTwin().

#include "ops/pixels/augment_pixels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/pixels/augment_draws.h"

namespace lockstep::ops {
namespace {

// Returns draws, for `count` samples, that change no pixel.
at::Tensor NoDraws(int64_t count) {
  at::Tensor draws = at::zeros({count, kAugmentDraws});
  for (const int place : {kBrightness, kContrast, kSaturation, kOwnInBox, kOwnInLoss}) {
    draws.select(1, place).fill_(1);
  }
  for (int i = 0; i < kColourOperations; ++i) draws.select(1, kOrder + i).fill_(i);
  return draws;
}

void SetMixture(const at::Tensor& draws, std::vector<float> box, float own_in_box) {
  draws[0].narrow(0, kLeft, 4).copy_(at::tensor(box));
  draws[0][kOwnInBox].fill_(own_in_box);
}

// Returns the augmented pixels divided by 255.
at::Tensor Shares(const at::Tensor& pixels, const at::Tensor& draws) {
  const int64_t channels = pixels.size(1);
  return AugmentPixels(pixels, draws, at::full({channels}, 1 / 255.0), at::zeros({channels}),
                       at::kFloat);
}

at::Tensor RandomPixels(at::IntArrayRef shape) {
  at::manual_seed(1);
  return at::randint(0, 256, shape, at::kByte);
}

// Compares the colours of four pixels (a saturated, a grey, a dark and an ordinary pixel) with those of torchvision
// 0.26, which these lines computed from x = pixels / 255:
//   f = [1.3, 0.6, 1.7, -0.2] for i in order: x = [adjust_brightness, adjust_contrast,
//   adjust_saturation, adjust_hue][i](x, f[i])
TEST(AugmentPixels, ColoursAreTorchvisions) {
  const at::Tensor pixels =
      at::tensor({250, 90, 0, 200, 10, 90, 3, 120, 30, 90, 9, 210}, at::kByte).view({1, 3, 2, 2});
  const std::vector<float> factors{1.3, 0.6, 1.7, -0.2};
  struct Case {
    std::vector<int> order;
    std::vector<float> expected;
  };
  const std::vector<Case> cases{{{0},
                                 {1.000000, 0.458824, 0.000000, 1.000000, 0.050980, 0.458824,
                                  0.015294, 0.611765, 0.152941, 0.458824, 0.045882, 1.000000}},
                                {{1},
                                 {0.718021, 0.341550, 0.129786, 0.600374, 0.153315, 0.341550,
                                  0.136844, 0.412138, 0.200374, 0.341550, 0.150962, 0.623903}},
                                {{2},
                                 {1.000000, 0.352966, 0.000000, 0.910149, 0.000000, 0.352966,
                                  0.012349, 0.376816, 0.000000, 0.352966, 0.052349, 0.976816}},
                                {{3},
                                 {0.713726, 0.352941, 0.000000, 0.470588, 0.039216, 0.352941,
                                  0.035294, 0.580392, 0.980392, 0.352941, 0.016471, 0.823529}},
                                {{0, 1, 2, 3},
                                 {0.709141, 0.434450, 0.153169, 0.458894, 0.065707, 0.434450,
                                  0.199969, 0.538094, 1.000000, 0.434450, 0.175009, 0.854894}},
                                {{3, 2, 1, 0},
                                 {0.933044, 0.452030, 0.176716, 0.486640, 0.176716, 0.452030,
                                  0.211179, 0.632240, 0.956716, 0.452030, 0.186219, 0.954640}},
                                {{1, 3, 0, 2},
                                 {0.925061, 0.444046, 0.156396, 0.478657, 0.030661, 0.444046,
                                  0.203196, 0.624257, 1.000000, 0.444046, 0.178236, 0.946657}},
                                {{2, 0, 3, 1},
                                 {0.626411, 0.421725, 0.146411, 0.440327, 0.146411, 0.421725,
                                  0.187244, 0.501544, 0.746411, 0.421725, 0.169445, 0.746411}}};
  for (const Case& c : cases) {
    const at::Tensor draws = NoDraws(1);
    for (const int operation : c.order) draws[0][operation].fill_(factors[operation]);
    // Operations that the case does not name keep a factor that changes nothing, so the places of these operations in
    // the order do not matter.
    for (size_t i = 0; i < c.order.size(); ++i) draws[0][kOrder + i].fill_(c.order[i]);
    if (c.order.size() == 1) draws[0][kOrder + c.order[0]].fill_(0);
    const at::Tensor expected = at::tensor(c.expected).view({1, 3, 2, 2});
    EXPECT_TRUE(at::allclose(Shares(pixels, draws), expected, 0, 1e-6)) << at::tensor(c.order);
  }
}

TEST(AugmentPixels, WithoutDrawsIsNormalisation) {
  const at::Tensor pixels = RandomPixels({3, 3, 5, 7});
  const at::Tensor scale = at::randn({3});
  const at::Tensor shift = at::randn({3});
  const at::Tensor out = AugmentPixels(pixels, NoDraws(3), scale, shift, at::kFloat);
  const at::Tensor expected = pixels * scale.view({1, 3, 1, 1}) + shift.view({1, 3, 1, 1});
  EXPECT_TRUE(at::allclose(out, expected, 1e-5, 1e-5));
}

TEST(AugmentPixels, MixesEachImageWithTheOneBefore) {
  const at::Tensor pixels = RandomPixels({4, 2, 5, 7});
  const at::Tensor x = pixels / 255.0F;
  const at::Tensor draws = NoDraws(4);
  SetMixture(draws, {0, 0, 7, 5}, 0.3);
  const at::Tensor mixed = Shares(pixels, draws);
  for (int64_t n = 0; n < 4; ++n) {
    EXPECT_TRUE(at::allclose(mixed[n], 0.3F * x[n] + 0.7F * x[(n + 3) % 4], 1e-5, 1e-6));
  }

  SetMixture(draws, {2, 1, 6, 4}, 0);
  const at::Tensor cut = Shares(pixels, draws);
  for (int64_t n = 0; n < 4; ++n) {
    at::Tensor expected = x[n].clone();
    expected.slice(1, 1, 4).slice(2, 2, 6).copy_(x[(n + 3) % 4].slice(1, 1, 4).slice(2, 2, 6));
    EXPECT_TRUE(at::allclose(cut[n], expected, 1e-5, 1e-6));
  }
}

TEST(AugmentPixels, TheFirstSamplesMixtureCounts) {
  const at::Tensor pixels = RandomPixels({2, 3, 4, 4});
  const at::Tensor draws = NoDraws(2);
  const at::Tensor plain = Shares(pixels, draws);
  draws[1][kOwnInBox].fill_(0);
  draws[1][kRight].fill_(4);
  draws[1][kBottom].fill_(4);
  EXPECT_TRUE(at::equal(Shares(pixels, draws), plain));
}

TEST(AugmentPixels, OneImageMixedWithItselfStaysAsItIs) {
  const at::Tensor pixels = RandomPixels({1, 3, 4, 4});
  const at::Tensor draws = NoDraws(1);
  const at::Tensor plain = Shares(pixels, draws);
  SetMixture(draws, {0, 0, 4, 4}, 0.3);
  EXPECT_TRUE(at::allclose(Shares(pixels, draws), plain, 1e-6));
  SetMixture(draws, {1, 1, 3, 3}, 0);
  EXPECT_TRUE(at::equal(Shares(pixels, draws), plain));
}

TEST(AugmentPixels, OtherChannelsHaveNoColours) {
  for (const int64_t channels : {1, 4}) {
    const at::Tensor pixels = RandomPixels({2, channels, 4, 4});
    const at::Tensor draws = NoDraws(2);
    const at::Tensor plain = Shares(pixels, draws);
    draws.select(1, kBrightness).fill_(0.5);
    EXPECT_TRUE(at::equal(Shares(pixels, draws), plain));
  }
}

TEST(AugmentPixels, AnEmptyMicroBatch) {
  const at::Tensor out = Shares(RandomPixels({0, 3, 4, 4}), NoDraws(0));
  EXPECT_EQ(out.sizes(), (std::vector<int64_t>{0, 3, 4, 4}));
}

TEST(AugmentPixels, RoundsOnceAndKeepsTheOrder) {
  const at::Tensor draws = NoDraws(3);
  draws.select(1, kHue).fill_(0.1);
  SetMixture(draws, {0, 0, 7, 5}, 0.3);
  const at::Tensor scale = at::full({3}, 0.01);
  const at::Tensor shift = at::full({3}, -1);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const at::Tensor pixels = RandomPixels({3, 3, 5, 7}).contiguous(format);
    const at::Tensor numbers = AugmentPixels(pixels, draws, scale, shift, at::kFloat);
    EXPECT_EQ(numbers.strides(), pixels.strides());
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
      EXPECT_TRUE(at::equal(AugmentPixels(pixels, draws, scale, shift, dtype), numbers.to(dtype)));
    }
  }
}

}  // namespace
}  // namespace lockstep::ops
