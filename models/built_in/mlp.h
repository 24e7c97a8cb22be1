// A multi-layer perceptron: linear layers with ReLU between them. With mixed precision the activations between the
// layers have 16 bits.
//
// Parameters are named as those of the PyTorch model
//   nn.Sequential(nn.Linear(features, h1), nn.BatchNorm1d(h1), nn.ReLU(), nn.Dropout(p), ...,
//                 nn.Linear(hn, classes))
// namely "0.weight", "0.bias", ... BatchNorm and Dropout are there only if the config sets them. Categorical columns
// may be embedded first (category_embeddings.h). The parameters have the same initial distribution as in PyTorch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/batch_norm.h"
#include "models/built_in/category_embeddings.h"
#include "models/model.h"

namespace lockstep {

class Mlp : public Model {
 public:
  explicit Mlp(const ModelSpec& spec);

  at::Tensor Forward(const at::Tensor& input) override;
  std::vector<std::string> HeadPrefixes() const override { return {head_}; }

 private:
  struct Layer {
    std::string name;                 // the module's name, such as "0"
    at::Tensor weight;                // [outputs, inputs]
    at::Tensor bias;                  // [outputs]
    std::shared_ptr<BatchNorm> norm;  // null: the layer has no norm
  };
  std::vector<Layer> layers_;
  double dropout_;
  CategoryEmbeddings embeddings_;
  std::string head_;
};

}  // namespace lockstep
