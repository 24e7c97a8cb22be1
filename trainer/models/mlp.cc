#include "trainer/models/mlp.h"

#include <torch/nn/modules/linear.h>

#include <functional>
#include <numeric>

namespace lockstep {

Mlp::Mlp(const ModelSpec& spec) {
  int64_t width = std::accumulate(spec.input_shape.begin(), spec.input_shape.end(), int64_t{1},
                                  std::multiplies<>());
  std::vector<int64_t> outputs(spec.config.mlp().hidden().begin(),
                               spec.config.mlp().hidden().end());
  outputs.push_back(spec.classes);
  for (size_t i = 0; i < outputs.size(); ++i) {
    // Odd numbers are the ReLUs'.
    const auto linear =
        register_module(std::to_string(2 * i), torch::nn::Linear(width, outputs[i]));
    layers_.push_back({linear->weight, linear->bias});
    width = outputs[i];
  }
}

at::Tensor Mlp::Forward(const at::Tensor& input) {
  at::Tensor x = input.flatten(1);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (i > 0) x = at::relu(x);
    x = at::linear(x, layers_[i].weight, layers_[i].bias);
  }
  return x;
}

}  // namespace lockstep
