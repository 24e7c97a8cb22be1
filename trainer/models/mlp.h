// A multi-layer perceptron: linear layers with ReLU between them.
//
// Parameters are named as those of the PyTorch model
//   nn.Sequential(nn.Linear(features, h1), nn.ReLU(), ..., nn.Linear(hn, classes))
// "0.weight", "0.bias", "2.weight", ..., and start from the same distribution.
#pragma once

#include <vector>

#include "trainer/model.h"

namespace lockstep {

class Mlp : public Model {
 public:
  explicit Mlp(const ModelSpec& spec);

  at::Tensor Forward(const at::Tensor& input) override;

 private:
  struct Layer {
    at::Tensor weight;  // [outputs, inputs]
    at::Tensor bias;    // [outputs]
  };
  std::vector<Layer> layers_;
};

}  // namespace lockstep
