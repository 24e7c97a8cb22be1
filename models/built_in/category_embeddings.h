// CategoryEmbeddings: learnt embeddings of a table's categorical columns, for the models that take tables.
//
// In the input each categorical column is one-hot encoded, as a range of features (data.csv.category). A column with
// more than `width` categories is replaced by an embedding of `width` numbers: the one-hot features are multiplied with
// a weight matrix [categories, width], which selects a row of the matrix, as torch.nn.Embedding does. If a category did
// not occur in the training rows, its features are all zero, and therefore its embedding is zero. All other features
// are kept unchanged and come before the embeddings in the output.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace lockstep {

class CategoryEmbeddings {
 public:
  // Makes the embeddings of all columns with more than `width` categories. `width` is the size of an embedding; 0:
  // there are no embeddings. `field` is the name of the config's field that sets `width`, for errors. Throws Error
  // (kUsage) if the samples are tokens, or if `width` is above 0 and the samples have no categorical columns.
  CategoryEmbeddings(const ModelSpec& spec, int64_t width, std::string_view field);

  // Registers one parameter in `model` for each embedded column: "embeddings.I.weight" [categories, width] for embedded
  // column number I, counted from 0.
  void AddTo(torch::nn::Module& model) const;

  // Returns the number of features of one sample in the result of Forward().
  int64_t outputs() const { return outputs_; }

  // Returns the kept features and the embeddings of `x`, [count, outputs()]. `x` is [count, features] in any float
  // type.
  at::Tensor Forward(const at::Tensor& x) const;

 private:
  struct Column {
    FeatureRange features;
    at::Tensor weight;
  };

  std::vector<FeatureRange> kept_;  // the features that are not embedded
  std::vector<Column> columns_;
  int64_t outputs_;
};

}  // namespace lockstep
