#include "models/built_in/category_embeddings.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "base/tensor/range.h"
#include "ops/product/linear.h"

namespace lockstep {

CategoryEmbeddings::CategoryEmbeddings(const ModelSpec& spec, int64_t width, std::string_view field)
    : outputs_(c10::multiply_integers(spec.input_shape)) {
  spec.RequireNumbers();
  const int64_t features_of_sample = outputs_;
  if (width == 0) return;
  if (spec.categories.empty()) {
    throw UsageError(
        "{}: the samples have no columns of categories, as data.csv.category names them", field);
  }
  int64_t next = 0;  // the first feature that is not yet in kept_ or columns_
  const auto keep_until = [&](int64_t end) {
    if (end > next) kept_.push_back({.first = next, .count = end - next});
  };
  for (const FeatureRange& features : spec.categories) {
    if (features.count <= width) continue;
    keep_until(features.first);
    next = features.first + features.count;
    columns_.push_back({features, at::randn({features.count, width}).requires_grad_()});
    outputs_ += width - features.count;
  }
  keep_until(features_of_sample);
}

void CategoryEmbeddings::AddTo(torch::nn::Module& model) const {
  if (columns_.empty()) return;
  using Module = torch::nn::Module;
  const auto all = model.register_module("embeddings", std::make_shared<Module>());
  for (size_t i = 0; i < columns_.size(); ++i) {
    all->register_module(std::to_string(i), std::make_shared<Module>())
        ->register_parameter("weight", columns_[i].weight);
  }
}

at::Tensor CategoryEmbeddings::Forward(const at::Tensor& x) const {
  if (columns_.empty()) return x;
  const Range range("embeddings");
  std::vector<at::Tensor> parts;
  for (const FeatureRange& kept : kept_) parts.push_back(x.narrow(1, kept.first, kept.count));
  for (const auto& [features, weight] : columns_) {
    parts.push_back(ops::Linear(x.narrow(1, features.first, features.count), weight, /*bias=*/{},
                                ops::WeightLayout::kInputsOutputs));
  }
  return at::cat(parts, 1);
}

}  // namespace lockstep
