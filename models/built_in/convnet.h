// A small convolutional net: 3x3 convolutions, each with ReLU and 2x2 max-pooling, then linear
// layers.
//
// Parameters are named as those of a PyTorch model with
//   features = nn.Sequential(nn.Conv2d(c0, c1, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), ...)
//   classifier = nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, classes))
// namely "features.0.weight", "features.3.weight", ..., "classifier.0.weight", "classifier.2.weight". The parameters
// have the same initial distribution as in PyTorch. Without a hidden layer the classifier is one linear layer.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace lockstep {

class ConvNet : public Model {
 public:
  // Takes a one-dimensional input as a square image with one channel if its number of elements is a square. Throws
  // Error (kUsage) if the inputs are not images or are too small for the pooling.
  explicit ConvNet(const ModelSpec& spec);

  at::Tensor Forward(const at::Tensor& input) override;
  std::vector<std::string> HeadPrefixes() const override {
    return {"classifier." + std::to_string(2 * (linears_.size() - 1)) + "."};
  }

 private:
  struct Layer {
    std::string name;  // the module's name, such as "features.0"
    at::Tensor weight;
    at::Tensor bias;
  };
  std::vector<int64_t> image_;  // channels, height, width
  std::vector<Layer> convolutions_;
  std::vector<Layer> linears_;
};

}  // namespace lockstep
