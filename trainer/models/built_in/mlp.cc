#include "trainer/models/built_in/mlp.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <torch/nn/modules/linear.h>

#include "base/error.h"
#include "base/tensor/autocast.h"
#include "base/tensor/range.h"
#include "trainer/ops/product/linear.h"

namespace lockstep {
namespace {

// Returns a value for each output, or one that stands for all.
std::vector<double> ValuesOfOutputs(const ModelSpec& spec, const char* field, double usual,
                                    const google::protobuf::RepeatedField<double>& given) {
  if (given.empty()) return {usual};
  if (spec.task != Task::kRegression) {
    throw UsageError("model.mlp.{}: is for data.task: REGRESSION", field);
  }
  if (given.size() != 1 && given.size() != spec.classes) {
    throw UsageError("model.mlp.{}: {} values for {} number{}: give one for each, or one for all",
                     field, given.size(), spec.classes, spec.classes == 1 ? "" : "s");
  }
  return {given.begin(), given.end()};
}

}  // namespace

Mlp::Mlp(const ModelSpec& spec)
    : dropout_(spec.config.mlp().dropout()),
      scales_(ValuesOfOutputs(spec, "output_scale", 1, spec.config.mlp().output_scale())),
      shifts_(ValuesOfOutputs(spec, "output_shift", 0, spec.config.mlp().output_shift())) {
  spec.RequireNumbers();
  int64_t width = c10::multiply_integers(spec.input_shape);
  const config::Mlp& config = spec.config.mlp();
  int index = 0;  // in nn.Sequential
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
    ++index;  // ReLU
    if (config.dropout() > 0) ++index;
  }
  head_ = std::to_string(index) + ".";
  add(spec.classes);
}

at::Tensor Mlp::Forward(const at::Tensor& input) {
  const NoAutocast plain(input.device());
  at::Tensor x = input.flatten(1).to(plain.dtype());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const Range range(layer.name);
    x = ops::Linear(x, layer.weight, layer.bias, ops::WeightLayout::kOutputsInputs);
    if (i + 1 == layers_.size()) return Scaled(x);
    x = layer.norm ? layer.norm->forward(x, ops::Activation::kRelu) : at::relu(x);
    if (dropout_ > 0) x = at::dropout(x, dropout_, is_training());
  }
  return x;
}

// Scales and shifts are numbers of the program and not tensors: a step's graph on a GPU may hold no copy from the host.
at::Tensor Mlp::Scaled(const at::Tensor& outputs) const {
  const bool each = scales_.size() > 1 || shifts_.size() > 1;
  if (!each && scales_[0] == 1 && shifts_[0] == 0) return outputs;
  const at::Tensor x = outputs.to(at::kFloat);
  if (!each) return x * scales_[0] + shifts_[0];
  std::vector<at::Tensor> columns = x.unbind(1);
  for (size_t i = 0; i < columns.size(); ++i) {
    columns[i] =
        columns[i] * scales_[scales_.size() > 1 ? i : 0] + shifts_[shifts_.size() > 1 ? i : 0];
  }
  return at::stack(columns, 1);
}

}  // namespace lockstep
