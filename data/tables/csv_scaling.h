// Scales the numbers of a CSV table's column with values that were fitted to its training rows.
//
// Promise: all of it is computed in double. Quantiles are NumPy's, interpolated between the sorted values.
//   kStandard  (x - mean) / standard deviation
//   kRobust    (x - median) / (75th percentile - 25th percentile), as scikit-learn's RobustScaler
//   kQuantile  F^-1(r), where F is the normal distribution and r the share of the training rows below x, interpolated
//              between up to kMostQuantiles quantiles; the least value and what is below it become F^-1(1e-7) = -5.199,
//              the greatest and what is above it 5.199, as scikit-learn's QuantileTransformer (subsample=None) has it.
//              It also moves values that are less than 1e-7 from the least or the greatest there, which is not done
//              here: it would make one value of a column of small numbers.
//
// what can fail -> nothing; the tests are in data/tables/csv_scaling_test.cc
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "data/tables/csv_options.h"

namespace lockstep {

inline constexpr size_t kMostQuantiles = 1000;

// Returns the number below which the share part / parts of `sorted` lies, numbers in ascending order. The place is exact,
// so that equal numbers give equal quantiles.
double QuantileOf(std::span<const double> sorted, size_t part, size_t parts);

// Writes to `column` what the scaling needs, besides mean and standard deviation. `values` are the numbers of the
// training rows, at least one. It sorts them.
void FitScaling(CsvScaling scaling, std::vector<double>& values, CsvColumn& column);

// Returns the number that takes the place of a missing one: the median if the scaling is made for columns with far
// values, which would move the mean; otherwise the mean.
double ValueIfMissing(CsvScaling scaling, const CsvColumn& column);

// Returns the number as it is scaled. kNone returns it as it is.
double Scaled(CsvScaling scaling, const CsvColumn& column, double number);

// Returns the x below which the standard normal distribution has the share `probability` in (0, 1).
double NormalQuantile(double probability);

}  // namespace lockstep
