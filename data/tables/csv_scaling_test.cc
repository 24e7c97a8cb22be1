#include "data/tables/csv_scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

CsvColumn Fitted(CsvScaling scaling, std::vector<double> values) {
  CsvColumn column;
  FitScaling(scaling, values, column);
  return column;
}

std::vector<double> ScaledAll(CsvScaling scaling, const CsvColumn& column,
                              const std::vector<double>& numbers) {
  std::vector<double> scaled;
  for (const double number : numbers) scaled.push_back(Scaled(scaling, column, number));
  return scaled;
}

// kValues holds the numbers in the training rows, and kOthers holds numbers that are scaled with the values that were
// fitted to kValues. The expected numbers in these tests are those that scikit-learn 1.9.1 gives for kValues and
// kOthers.
const std::vector<double> kValues{3, -1, 0, 0, 100, 7, 2.5, 0, 12};
const std::vector<double> kOthers{-5, -1, -0.5, 0, 1, 2.5, 2.75, 3.5, 50, 100, 1e6};

TEST(CsvScaling, RobustIsThatOfScikitLearn) {
  const CsvColumn column = Fitted(CsvScaling::kRobust, kValues);
  EXPECT_EQ(column.median, 2.5);
  EXPECT_EQ(column.quartile_range, 7);
  const std::vector<double> expected{-1.0714285714285714,  -0.5,
                                     -0.42857142857142855, -0.35714285714285715,
                                     -0.21428571428571427, 0,
                                     0.03571428571428571,  0.14285714285714285,
                                     6.785714285714286,    13.928571428571429,
                                     142856.7857142857};
  EXPECT_EQ(ScaledAll(CsvScaling::kRobust, column, kOthers), expected);
}

TEST(CsvScaling, QuantilesAreThoseOfScikitLearn) {
  const CsvColumn column = Fitted(CsvScaling::kQuantile, kValues);
  EXPECT_THAT(column.quantiles, ElementsAre(-1, 0, 0, 0, 2.5, 3, 7, 12, 100));
  const std::vector<double> expected{-5.199337582605575,  -5.199337582605575,   -1.5341205443525463,
                                     -0.6744897501960817, -0.18911842627279252, 0,
                                     0.1573106846101707,  0.36012989178956945,  1.468216386426896,
                                     5.19933758270342,    5.19933758270342};
  EXPECT_THAT(ScaledAll(CsvScaling::kQuantile, column, kOthers),
              Pointwise(DoubleNear(1e-9), expected));
}

TEST(CsvScaling, ThousandQuantilesOfMoreRowsAreThoseOfScikitLearn) {
  std::vector<double> values;
  for (int i = 0; i < 2500; ++i) values.push_back(std::pow((i * 7919) % 2503 / 100.0, 3));
  const CsvColumn column = Fitted(CsvScaling::kQuantile, values);
  ASSERT_EQ(column.quantiles.size(), kMostQuantiles);
  EXPECT_NEAR(column.quantiles[1], 1.7528528528528525e-05, 1e-17);
  EXPECT_NEAR(column.quantiles[500], 1956.646960210211, 1e-9);
  EXPECT_NEAR(column.quantiles[998], 15615.600607606606, 1e-9);
  EXPECT_EQ(column.quantiles[999], 15662.530008);
  const std::vector<double> expected{-5.199337582605575,  -3.8582240550167763,  -1.8556193454097865,
                                     -1.4048616626150952, -0.25293421353186424, 2.1883755395564988,
                                     3.0035151864919873,  5.19933758270342,     5.19933758270342};
  EXPECT_THAT(
      ScaledAll(CsvScaling::kQuantile, column, {0, 1e-6, 0.5, 8, 1000, 15000, 15600, 15683, 20000}),
      Pointwise(DoubleNear(1e-9), expected));
}

TEST(CsvScaling, AColumnOfOneValueIsScaledToo) {
  EXPECT_EQ(Fitted(CsvScaling::kRobust, {4, 4, 4}).quartile_range, 1);
  const CsvColumn one = Fitted(CsvScaling::kQuantile, {4});
  EXPECT_THAT(one.quantiles, ElementsAre(4));
  const std::vector<double> scaled = ScaledAll(CsvScaling::kQuantile, one, {3, 4, 5});
  EXPECT_NEAR(scaled[0], -5.2, 1e-3);
  EXPECT_NEAR(scaled[1], -5.2, 1e-3);
  EXPECT_NEAR(scaled[2], 5.2, 1e-3);
}

TEST(CsvScaling, NormalQuantilesAreThoseOfScipy) {
  EXPECT_NEAR(NormalQuantile(1e-7), -5.1993375821928165, 1e-14);
  EXPECT_NEAR(NormalQuantile(0.001), -3.090232306167813, 1e-14);
  EXPECT_NEAR(NormalQuantile(0.3), -0.5244005127080409, 1e-15);
  EXPECT_NEAR(NormalQuantile(0.5), 0, 1e-16);
  EXPECT_NEAR(NormalQuantile(0.9), 1.2815515655446004, 1e-14);
  EXPECT_NEAR(NormalQuantile(1 - 1e-7), 5.199337582290661, 1e-14);
}

}  // namespace
}  // namespace lockstep
