// NumberBins: a piecewise linear encoding of a table's numbers, for the models that take tables (Gorishniy, Rubachev
// and Babenko, "On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS 2022).
//
// A number x becomes `bins` features, one for each bin. The bins divide the real numbers so that a standard normal
// distribution has the same share in each: their inner edges are the quantiles 1 / bins, 2 / bins ... of that
// distribution, and their outer edges are -3.5 and 3.5. With data.csv.scaling QUANTILE the numbers have this
// distribution, so each bin has about as many training rows. The feature of a bin with the edges low and high is
//
//   clamp((x - low) / (high - low), 0, 1)
//
// A linear layer on these features is a function of x with a kink at each edge. It finds thresholds sooner than a
// linear layer on x itself. The features of categories (data.csv.category) are kept unchanged and come after those of
// the numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/model.h"

namespace lockstep {

class NumberBins {
 public:
  // Makes the encoding of all features of a sample that belong to no category. `bins` is the number of features that
  // take a number's place; 0: samples are kept as they are. Throws Error (kUsage) if the samples are tokens.
  NumberBins(const ModelSpec& spec, int64_t bins);

  // Returns the description of the samples in the result of Forward().
  const ModelSpec& spec() const { return spec_; }

  // Returns the features of `x`, [count, spec().input_shape[0]]. `x` is [count, features], float32.
  at::Tensor Forward(const at::Tensor& x);

 private:
  ModelSpec spec_;
  std::vector<FeatureRange> numbers_;     // empty: samples are kept as they are
  std::vector<FeatureRange> categories_;  // in the samples
  at::Tensor low_, width_;                // of each bin, on the device of the last samples
};

}  // namespace lockstep
