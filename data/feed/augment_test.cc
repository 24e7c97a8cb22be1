#include "data/feed/augment.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "data/dataset/sample_random.h"

namespace lockstep {
namespace {

using Draws = std::array<float, kAugmentDraws>;

constexpr int64_t kSamples = 100000;
constexpr ImageSize kImage{.width = 20, .height = 12};

Draws DrawsOf(const AugmentOptions& options, int64_t epoch, int64_t index) {
  Draws draws;
  DrawAugmentation(options, kImage, epoch, index, draws.data());
  return draws;
}

// Returns the mean and the variance of `number` over kSamples samples in epoch 3.
std::pair<double, double> MomentsOf(const AugmentOptions& options,
                                    const std::function<double(const Draws&)>& number) {
  double sum = 0;
  double squares = 0;
  for (int64_t index = 0; index < kSamples; ++index) {
    const double x = number(DrawsOf(options, 3, index));
    sum += x;
    squares += x * x;
  }
  const double mean = sum / kSamples;
  return {mean, squares / kSamples - mean * mean};
}

// Returns five standard errors of the mean of kSamples numbers that have the variance `variance`.
double ErrorOf(double variance) { return 5 * std::sqrt(variance / kSamples); }

TEST(Augment, WithoutOptionsNothingChanges) {
  const AugmentOptions options;
  EXPECT_FALSE(options.Any());
  EXPECT_FALSE(EmptyDraws(options, 5, {}).defined());
  const Draws draws = DrawsOf({.seed = 9}, 0, 0);
  EXPECT_EQ(draws[kBrightness], 1);
  EXPECT_EQ(draws[kContrast], 1);
  EXPECT_EQ(draws[kSaturation], 1);
  EXPECT_EQ(draws[kHue], 0);
  EXPECT_EQ(draws[kRight] - draws[kLeft], 0);
  EXPECT_EQ(draws[kOwnInLoss], 1);
}

TEST(Augment, DependsOnSeedEpochAndSample) {
  AugmentOptions options{.brightness = 0.4, .hue = 0.1, .mixup = 0.2, .cutmix = 1, .seed = 7};
  const Draws draws = DrawsOf(options, 2, 5);
  EXPECT_EQ(DrawsOf(options, 2, 5), draws);
  EXPECT_NE(DrawsOf(options, 3, 5), draws);
  EXPECT_NE(DrawsOf(options, 2, 6), draws);
  options.seed = 8;
  EXPECT_NE(DrawsOf(options, 2, 5), draws);
}

TEST(Augment, OneOptionDoesNotChangeTheOthersDraws) {
  const Draws hue = DrawsOf({.hue = 0.1, .seed = 7}, 2, 5);
  const Draws all =
      DrawsOf({.brightness = 0.4, .contrast = 0.4, .hue = 0.1, .mixup = 0.2, .seed = 7}, 2, 5);
  EXPECT_EQ(hue[kHue], all[kHue]);
  for (int i = 0; i < kColourOperations; ++i) EXPECT_EQ(hue[kOrder + i], all[kOrder + i]);
}

// Checks that the first four random numbers of a sample's crop are different from the sample's three colour factors,
// and not correlated with them. Otherwise the colours would depend on the crop.
TEST(Augment, HasNothingInCommonWithTheCrop) {
  const AugmentOptions options{.brightness = 0.5, .contrast = 0.5, .saturation = 0.5, .seed = 7};
  std::array<std::array<double, 3>, 4> products{};
  for (int64_t index = 0; index < kSamples; ++index) {
    SampleRandom crop(options.seed, 3, index);
    std::array<double, 4> of_crop;
    for (double& number : of_crop) number = crop.Uniform() - 0.5;
    const Draws draws = DrawsOf(options, 3, index);
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 3; ++j) {
        const double of_colours = draws[kBrightness + j] - 1;
        ASSERT_GT(std::abs(of_colours - of_crop[i]), 1e-12);
        products[i][j] += of_colours * of_crop[i];
      }
    }
  }
  for (const auto& row : products) {
    // The product of two independent uniform numbers from [-0.5, 0.5] has the variance 1 / 144.
    for (const double sum : row) EXPECT_NEAR(sum / kSamples, 0, ErrorOf(1.0 / 144));
  }
}

TEST(Augment, FactorsAreUniform) {
  const AugmentOptions options{.brightness = 0.4, .contrast = 1, .saturation = 0.1, .hue = 0.5};
  const std::map<int, std::pair<double, double>> expected{
      {kBrightness, {1, 0.4}}, {kContrast, {1, 1}}, {kSaturation, {1, 0.1}}, {kHue, {0, 0.5}}};
  for (const auto& [place, range] : expected) {
    const auto [middle, half] = range;
    double least = 2;
    double most = -1;
    const auto [mean, variance] = MomentsOf(options, [&, place = place](const Draws& draws) {
      least = std::min<double>(least, draws[place]);
      most = std::max<double>(most, draws[place]);
      return draws[place];
    });
    EXPECT_NEAR(mean, middle, ErrorOf(half * half / 3));
    // The square of a uniform number from [-half, half] has the variance 4 / 45 * half^4.
    EXPECT_NEAR(variance, half * half / 3, ErrorOf(4.0 / 45 * std::pow(half, 4)));
    EXPECT_GE(least, static_cast<float>(middle - half));
    EXPECT_LE(most, static_cast<float>(middle + half));
    EXPECT_NEAR(least, middle - half, 1e-3 * half);
    EXPECT_NEAR(most, middle + half, 1e-3 * half);
  }
}

TEST(Augment, EveryOrderIsAsLikely) {
  std::map<std::array<float, kColourOperations>, int64_t> counts;
  for (int64_t index = 0; index < kSamples; ++index) {
    const Draws draws = DrawsOf({.hue = 0.1}, 0, index);
    std::array<float, kColourOperations> order;
    std::copy_n(draws.begin() + kOrder, kColourOperations, order.begin());
    ASSERT_EQ(std::set<float>(order.begin(), order.end()), (std::set<float>{0, 1, 2, 3}));
    ++counts[order];
  }
  EXPECT_EQ(counts.size(), 24);
  double chi_square = 0;
  for (const auto& [order, count] : counts) {
    const double expected = kSamples / 24.0;
    chi_square += std::pow(static_cast<double>(count) - expected, 2) / expected;
  }
  EXPECT_LT(chi_square, 58);  // 23 degrees of freedom: P(chi-square > 58) < 1e-4
}

TEST(Augment, MixupsSharesAreFromBeta) {
  for (const double a : {0.05, 0.2, 0.8, 1.0, 4.0, 100.0}) {
    const auto [mean, variance] =
        MomentsOf({.mixup = a, .seed = 1}, [](const Draws& draws) -> double {
          EXPECT_EQ(draws[kOwnInBox], draws[kOwnInLoss]);
          EXPECT_EQ(draws[kLeft] + draws[kTop], 0);
          EXPECT_EQ(draws[kRight], kImage.width);
          EXPECT_EQ(draws[kBottom], kImage.height);
          return draws[kOwnInLoss];
        });
    const double expected = 1 / (4 * (2 * a + 1));
    EXPECT_NEAR(mean, 0.5, ErrorOf(expected)) << a;
    // The fourth central moment of Beta(a, a) is 3 / (16 (2a + 1) (2a + 3)).
    const double fourth = 3 / (16 * (2 * a + 1) * (2 * a + 3));
    EXPECT_NEAR(variance, expected, ErrorOf(fourth - expected * expected) + 1e-6) << a;
  }
}

// Checks that the shares are in [0, 1] for a = 1e-6. With this parameter, the two numbers from the Gamma distribution
// that make a share are mostly too small for a double.
TEST(Augment, SmallParametersGiveNumbers) {
  int64_t ends = 0;
  for (int64_t index = 0; index < 1000; ++index) {
    const float own = DrawsOf({.mixup = 1e-6}, 0, index)[kOwnInLoss];
    ASSERT_TRUE(own >= 0 && own <= 1);
    ends += own == 0 || own == 1;
  }
  EXPECT_GT(ends, 990);
}

TEST(Augment, CutmixsBoxesAreTorchvisions) {
  const double pixels = static_cast<double>(kImage.width * kImage.height);
  double left_out = 0;
  for (int64_t index = 0; index < kSamples; ++index) {
    const Draws draws = DrawsOf({.cutmix = 1, .seed = 1}, 0, index);
    const float width = draws[kRight] - draws[kLeft];
    const float height = draws[kBottom] - draws[kTop];
    for (const int place : {kLeft, kTop, kRight, kBottom}) {
      ASSERT_EQ(draws[place], std::floor(draws[place]));
    }
    ASSERT_TRUE(0 <= draws[kLeft] && draws[kRight] <= kImage.width && width >= 0);
    ASSERT_TRUE(0 <= draws[kTop] && draws[kBottom] <= kImage.height && height >= 0);
    ASSERT_EQ(draws[kOwnInBox], 0);
    ASSERT_FLOAT_EQ(draws[kOwnInLoss], static_cast<float>(1 - width * height / pixels));
    left_out += draws[kOwnInLoss];
  }
  // 0.7274 is the mean of 300,000 values of lam_adjusted that torchvision 0.26's CutMix(alpha=1).make_params drew for
  // images of the size kImage. The standard error of 0.7274 is 0.0003, that of this test's mean is 0.0005, and that of
  // their difference is 0.0006.
  EXPECT_NEAR(left_out / kSamples, 0.7274, 5 * 0.0006);
}

TEST(Augment, TakesEitherHalfOfTheTime) {
  int64_t cuts = 0;
  for (int64_t index = 0; index < kSamples; ++index) {
    cuts += DrawsOf({.mixup = 1, .cutmix = 1}, 0, index)[kOwnInBox] == 0;
  }
  EXPECT_NEAR(static_cast<double>(cuts) / kSamples, 0.5, ErrorOf(0.25));
}

}  // namespace
}  // namespace lockstep
