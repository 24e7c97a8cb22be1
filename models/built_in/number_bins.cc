#include "models/built_in/number_bins.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include "base/tensor/range.h"

namespace lockstep {
namespace {

// The outer edges. One number in 2000 of a normal distribution lies beyond them.
constexpr double kOuterEdge = 3.5;

std::vector<at::Tensor> PartsOf(const at::Tensor& x, const std::vector<FeatureRange>& ranges) {
  std::vector<at::Tensor> parts;
  for (const FeatureRange& range : ranges) parts.push_back(x.narrow(1, range.first, range.count));
  return parts;
}

}  // namespace

NumberBins::NumberBins(const ModelSpec& spec, int64_t bins) : spec_(spec) {
  spec.RequireNumbers();
  if (bins == 0) return;
  const int64_t features = c10::multiply_integers(spec.input_shape);
  categories_ = spec.categories;
  int64_t count = 0;  // of numbers
  int64_t next = 0;   // the first feature that is not yet in numbers_ or categories_
  const auto number_until = [&](int64_t end) {
    if (end > next) numbers_.push_back({.first = next, .count = end - next});
    count += end - next;
  };
  for (const FeatureRange& category : categories_) {
    number_until(category.first);
    next = category.first + category.count;
  }
  number_until(features);
  if (numbers_.empty()) return;
  int64_t outputs = count * bins;
  for (FeatureRange& category : spec_.categories) {
    category.first = outputs;
    outputs += category.count;
  }
  spec_.input_shape = {outputs};
  // The quantiles of the normal distribution are computed with 64 bits, because 1 - 1 / bins is near 1.
  at::Tensor edges = at::special_ndtri(at::arange(bins + 1, at::kDouble) / bins);
  edges.clamp_(-kOuterEdge, kOuterEdge);
  low_ = edges.slice(0, 0, bins).to(at::kFloat);
  width_ = edges.diff().to(at::kFloat);
}

at::Tensor NumberBins::Forward(const at::Tensor& x) {
  if (numbers_.empty()) return x;
  const Range range("number_bins");
  if (low_.device() != x.device()) {
    low_ = low_.to(x.device());
    width_ = width_.to(x.device());
  }
  const at::Tensor numbers = at::cat(PartsOf(x, numbers_), 1).unsqueeze(2);
  std::vector<at::Tensor> parts = PartsOf(x, categories_);
  parts.insert(parts.begin(), ((numbers - low_) / width_).clamp(0, 1).flatten(1));
  return at::cat(parts, 1);
}

}  // namespace lockstep
