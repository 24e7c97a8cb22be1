// Histogram: holds how the values of one tensor are distributed over the ranges of TensorBoard's histograms.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct Histogram {
  // "parameters/NAME" or "gradients/NAME", where NAME is the name of the parameter. Weights & Biases uses the same
  // tags.
  std::string tag;
  // All fields below describe only the finite values.
  double min = 0;
  double max = 0;
  double num = 0;
  double sum = 0;
  double sum_squares = 0;
  // counts[i] is the number of values in [limits[i - 1], limits[i]). counts[0] is 0, because no value is less than
  // limits[0].
  std::vector<double> limits{};
  std::vector<double> counts{};
};

// Returns the bounds of all ranges in ascending order: 0, the numbers 1e-12 * 1.1^i (i = 0, 1, ...) that are less than
// 1e20, and the negatives of these numbers. These bounds are those of torch.utils.tensorboard's
// SummaryWriter.add_histogram(bins="tensorflow").
const std::vector<double>& HistogramBounds();

// Sets histogram.limits and histogram.counts. `counts` has the number of values in each range of HistogramBounds().
// Leaves out the empty ranges below the least value and above the greatest value, as SummaryWriter.add_histogram does.
// At least one number of `counts` must not be 0.
void SetCounts(std::span<const double> counts, Histogram& histogram);

}  // namespace lockstep
