#include "data/tables/csv_scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace lockstep {
namespace {

// Returns the share of the training rows whose value is below `number`. The share of quantiles[i] is i /
// (quantiles.size() - 1), and the share of a number between two quantiles is interpolated. If several quantiles equal
// `number`, returns the mean of the least and the greatest of their shares.
double ShareBelow(const std::vector<double>& quantiles, double number) {
  if (number <= quantiles.front()) return 0;
  if (number >= quantiles.back()) return 1;
  const double step = 1 / static_cast<double>(quantiles.size() - 1);
  const auto [first, behind] = std::equal_range(quantiles.begin(), quantiles.end(), number);
  const auto low = static_cast<double>(first - quantiles.begin());
  const auto high = static_cast<double>(behind - quantiles.begin() - 1);
  if (first != behind) return step * (low + high) / 2;
  return step * (high + (number - *(first - 1)) / (*first - *(first - 1)));
}

}  // namespace

double QuantileOf(std::span<const double> sorted, size_t part, size_t parts) {
  const size_t place = part * (sorted.size() - 1);  // the position in `sorted`, times `parts`
  const size_t below = place / parts;
  if (below + 1 == sorted.size()) return sorted.back();
  return std::lerp(sorted[below], sorted[below + 1],
                   static_cast<double>(place % parts) / static_cast<double>(parts));
}

void FitScaling(CsvScaling scaling, std::vector<double>& values, CsvColumn& column) {
  if (scaling != CsvScaling::kRobust && scaling != CsvScaling::kQuantile) return;
  std::ranges::sort(values);
  column.median = QuantileOf(values, 1, 2);
  if (scaling == CsvScaling::kRobust) {
    const double range = QuantileOf(values, 3, 4) - QuantileOf(values, 1, 4);
    column.quartile_range = range > 0 ? range : 1;
    return;
  }
  const size_t count = std::min(values.size(), kMostQuantiles);
  for (size_t i = 0; i < count; ++i) {
    column.quantiles.push_back(QuantileOf(values, i, std::max<size_t>(1, count - 1)));
  }
}

double ValueIfMissing(CsvScaling scaling, const CsvColumn& column) {
  switch (scaling) {
    case CsvScaling::kNone:
    case CsvScaling::kStandard:
      return column.mean;
    case CsvScaling::kRobust:
    case CsvScaling::kQuantile:
      return column.median;
  }
  return column.mean;
}

double Scaled(CsvScaling scaling, const CsvColumn& column, double number) {
  switch (scaling) {
    case CsvScaling::kNone:
      return number;
    case CsvScaling::kStandard:
      return (number - column.mean) / column.std;
    case CsvScaling::kRobust:
      return (number - column.median) / column.quartile_range;
    case CsvScaling::kQuantile: {
      constexpr double kLeast = 1e-7 - std::numeric_limits<double>::epsilon();
      return NormalQuantile(std::clamp(ShareBelow(column.quantiles, number), kLeast, 1 - kLeast));
    }
  }
  return number;
}

double NormalQuantile(double probability) {
  if (probability == 0.5) return 0;  // exactly 0, without a rounding error
  if (probability > 0.5) return -NormalQuantile(1 - probability);
  // The first value of x is that of formula 26.2.23 of Abramowitz and Stegun, whose error is below 4.5e-4. Each of the
  // two steps of Halley's method then triples the number of correct digits.
  const double t = std::sqrt(-2 * std::log(probability));
  double x = (2.515517 + t * (0.802853 + t * 0.010328)) /
                 (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) -
             t;
  for (int step = 0; step < 2; ++step) {
    const double error = std::erfc(-x / std::numbers::sqrt2) / 2 - probability;
    const double newton = error * std::sqrt(2 * std::numbers::pi) * std::exp(x * x / 2);
    x -= newton / (1 + x * newton / 2);
  }
  return x;
}

}  // namespace lockstep
