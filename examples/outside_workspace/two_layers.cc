// Registers a user-defined model and data set, and makes a program with the whole lockstep command line that can use
// them. The program is built in a separate Bazel workspace.

#include <torch/nn/modules/linear.h>

#include "launch/main.h"
#include "points.h"

class TwoLayers : public lockstep::Model {
 public:
  explicit TwoLayers(const lockstep::ModelSpec& spec)
      : first_(register_module("first", torch::nn::Linear(spec.input_shape[0], 64))),
        second_(register_module("second", torch::nn::Linear(64, spec.classes))) {}

  at::Tensor Forward(const at::Tensor& input) override {
    return second_(torch::gelu(first_(input)));
  }

 private:
  torch::nn::Linear first_, second_;
};

int main(int argc, char** argv) {
  lockstep::Models models = lockstep::BuiltInModels();
  models.Add<TwoLayers>("two_layers");
  lockstep::Datasets datasets;
  datasets.Add<Points>("points");
  return lockstep::Main(argc, argv, models, datasets);
}
