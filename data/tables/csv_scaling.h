// Scales the numbers of a column of a CSV table with values that were fitted to the column's numbers in the training
// rows.
//
// Promise: all values are computed in double. Quantiles equal NumPy's: they are interpolated between the sorted values.
//   kStandard  (x - mean) / standard deviation
//   kRobust    (x - median) / (75th percentile - 25th percentile), as in scikit-learn's RobustScaler
//   kQuantile  F^-1(r), where F is the standard normal distribution function and r is the share of the training rows
//              below x, interpolated between up to kMostQuantiles quantiles; the least value and all values below it
//              become F^-1(1e-7) = -5.199, the greatest value and all values above it become 5.199, as in
//              scikit-learn's QuantileTransformer (subsample=None). scikit-learn does the same to values that differ
//              from the least or the greatest value by less than 1e-7. Lockstep does not, because a column of small
//              numbers would lose its information.
//
// what can fail -> nothing; the tests are in data/tables/csv_scaling_test.cc
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "data/tables/csv_options.h"

namespace lockstep {

inline constexpr size_t kMostQuantiles = 1000;

// Returns the (part / parts)-quantile of `sorted`, whose numbers are in ascending order. The position of the quantile
// in `sorted` is computed in integers, so that rounding cannot move it past the last of several equal numbers.
double QuantileOf(std::span<const double> sorted, size_t part, size_t parts);

// Writes the values that `scaling` needs, except the mean and the standard deviation, to `column`. `values` holds the
// numbers of the training rows, at least one; FitScaling() may sort them.
void FitScaling(CsvScaling scaling, std::vector<double>& values, CsvColumn& column);

// Returns the number that replaces a missing number: the median with kRobust and kQuantile, and otherwise the mean.
// kRobust and kQuantile are for columns with outliers, which would change the mean much.
double ValueIfMissing(CsvScaling scaling, const CsvColumn& column);

// Returns the scaled number. With kNone the number does not change.
double Scaled(CsvScaling scaling, const CsvColumn& column, double number);

// Returns the quantile of the standard normal distribution for `probability`, which is in (0, 1).
double NormalQuantile(double probability);

}  // namespace lockstep
