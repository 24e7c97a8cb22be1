#include "models/built_in/mlp.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "base/tensor/autocast.h"
#include "base/tensor/range.h"
#include "ops/product/linear.h"

namespace lockstep {

Mlp::Mlp(const ModelSpec& spec)
    : dropout_(spec.config.mlp().dropout()),
      embeddings_(spec, spec.config.mlp().embed_categories(), "model.mlp.embed_categories") {
  embeddings_.AddTo(*this);
  int64_t width = embeddings_.outputs();
  const config::Mlp& config = spec.config.mlp();
  int index = 0;  // the index of the next module in nn.Sequential
  const auto add = [&](int64_t outputs) -> Layer& {
    const std::string name = std::to_string(index++);
    const auto linear = register_module(name, torch::nn::Linear(width, outputs));
    width = outputs;
    return layers_.emplace_back(Layer{name, linear->weight, linear->bias, nullptr});
  };
  for (const int64_t outputs : config.hidden()) {
    Layer& layer = add(outputs);
    if (config.batch_norm()) {
      layer.norm = register_module(std::to_string(index++),
                                   std::make_shared<BatchNorm>(outputs, spec.sync_batch_norm));
    }
    ++index;  // the ReLU module
    if (config.dropout() > 0) ++index;
  }
  head_ = std::to_string(index) + ".";
  add(spec.classes);
}

at::Tensor Mlp::Forward(const at::Tensor& input) {
  const NoAutocast plain(input.device());
  at::Tensor x = embeddings_.Forward(input.flatten(1).to(plain.dtype()));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const Range range(layer.name);
    x = ops::Linear(x, layer.weight, layer.bias, ops::WeightLayout::kOutputsInputs);
    if (i + 1 == layers_.size()) break;
    x = layer.norm ? layer.norm->forward(x, ops::Activation::kRelu) : at::relu(x);
    if (dropout_ > 0) x = at::dropout(x, dropout_, is_training());
  }
  return x;
}

}  // namespace lockstep
