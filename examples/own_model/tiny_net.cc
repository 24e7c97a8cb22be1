// Defines a model, registers it under a name, and makes a program with the whole lockstep command line that can train
// the model.

#include <torch/nn/modules/linear.h>

#include "launch/main.h"

class TinyNet : public lockstep::Model {
 public:
  explicit TinyNet(const lockstep::ModelSpec& spec)
      : hidden_(register_module(
            "hidden", torch::nn::Linear(spec.input_shape[0], spec.options.Integer("width", 32)))),
        head_(register_module("head",
                              torch::nn::Linear(hidden_->options.out_features(), spec.classes))) {}

  at::Tensor Forward(const at::Tensor& input) override {
    return head_(torch::tanh(hidden_(input)));
  }

 private:
  torch::nn::Linear hidden_, head_;
};

int main(int argc, char** argv) {
  lockstep::Models models = lockstep::BuiltInModels();
  models.Add<TinyNet>("tiny_net");
  return lockstep::Main(argc, argv, models);
}
