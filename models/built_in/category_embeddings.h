// CategoryEmbeddings: turns a table's columns of categories into numbers that are learnt, for the models of tables.
//
// A column of categories is a range of features of 0 and 1 (data.csv.category). A column of more categories than the
// embedding has numbers becomes that many numbers: its features times a matrix [categories, width], which for a row is
// the matrix's row of the category, as torch.nn.Embedding has it. A text that no training row had is all zeros. The
// other features stay as they are, in front.
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
  // `field` is the config's field that asks for embeddings of `width` numbers; 0: there are none. Throws Error (kUsage)
  // if the samples are tokens, or if embeddings are asked for where the samples have no columns of categories.
  CategoryEmbeddings(const ModelSpec& spec, int64_t width, std::string_view field);

  // Adds the parameters "embeddings.I.weight" [categories, width] to the model, for the I-th column that is embedded.
  void AddTo(torch::nn::Module& model) const;

  // The numbers of a sample after Forward().
  int64_t outputs() const { return outputs_; }

  // `x` is [count, features] in any float type. Returns [count, outputs()].
  at::Tensor Forward(const at::Tensor& x) const;

 private:
  struct Column {
    FeatureRange features;
    at::Tensor weight;
  };

  std::vector<FeatureRange> kept_;  // what lies between the columns
  std::vector<Column> columns_;
  int64_t outputs_;
};

}  // namespace lockstep
