#include "launch/tune/range_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace lockstep {
namespace {

// Returns points for 240 rates from 1e-7 to 10. `loss` returns the loss for the decimal logarithm of a rate.
std::vector<RatePoint> Curve(const std::function<double(double)>& loss) {
  std::vector<RatePoint> points;
  for (int i = 0; i < 240; ++i) {
    const double exponent = -7 + 8 * i / 239.0;
    points.push_back({std::pow(10, exponent), loss(exponent)});
  }
  return points;
}

// Returns the loss at the rate 10^`exponent`. The loss is 2.3 up to the rate 1e-4, falls to 0.3 at the rate 1e-2, stays
// 0.3 up to the rate 0.1, and then grows.
double Valley(double exponent) {
  if (exponent < -4) return 2.3;
  if (exponent < -2) return 2.3 - (exponent + 4);
  if (exponent < -1) return 0.3;
  return 0.3 + 20 * (exponent + 1);
}

TEST(RangeTest, FindsWhereTheLossFallsAndGrows) {
  const RangeTest range(Curve(Valley));
  ASSERT_TRUE(range.falls());
  EXPECT_NEAR(std::log10(range.begins()), -3.8, 0.2);
  EXPECT_GT(range.lowest(), 0.9e-2);
  EXPECT_LT(range.lowest(), 0.11);
  EXPECT_NEAR(std::log10(range.diverges()), -0.9, 0.1);
}

TEST(RangeTest, NoiseOfTheSamplesIsNoFall) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(2.3, 0.1);
  EXPECT_FALSE(RangeTest(Curve([&](double) { return noise(random); })).falls());
  std::normal_distribution<double> little(0, 0.1);
  EXPECT_TRUE(RangeTest(Curve([&](double x) { return Valley(x) + little(random); })).falls());
}

TEST(RangeTest, SaysThatNothingIsLearned) {
  EXPECT_FALSE(RangeTest(Curve([](double) { return 2.3; })).falls());
  EXPECT_FALSE(RangeTest(Curve([](double x) { return x < 0 ? 2.3 : 2.3 + x; })).falls());
  EXPECT_FALSE(RangeTest({}).falls());
  EXPECT_FALSE(RangeTest({{1e-7, 2.3}}).falls());
}

TEST(RangeTest, ALossThatIsNotFiniteIsTooHigh) {
  std::vector<RatePoint> points = Curve(Valley);
  points.resize(180);
  points.back().loss = std::numeric_limits<double>::quiet_NaN();
  const RangeTest range(points);
  ASSERT_TRUE(range.falls());
  EXPECT_LT(range.lowest(), points.back().rate);
  EXPECT_NEAR(std::log10(range.diverges()), std::log10(points.back().rate), 0.15);
}

}  // namespace
}  // namespace lockstep
