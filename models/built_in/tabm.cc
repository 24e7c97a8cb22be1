#include "models/built_in/tabm.h"

#include <ATen/ATen.h>

#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/tensor/autocast.h"
#include "base/tensor/range.h"
#include "ops/product/linear.h"

namespace lockstep {
namespace {

// Returns initial values with the distribution that PyTorch's linear layers have.
at::Tensor UniformFor(int64_t inputs, at::IntArrayRef sizes) {
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  return at::empty(sizes, at::kFloat).uniform_(-bound, bound);
}

at::Tensor Signs(at::IntArrayRef sizes) { return at::randint(0, 2, sizes, at::kFloat) * 2 - 1; }

}  // namespace

TabM::TabM(const ModelSpec& spec)
    : members_(spec.config.tabm().members()),
      classes_(spec.classes),
      dropout_(spec.config.tabm().dropout()),
      task_(spec.task),
      bins_(spec, spec.config.tabm().number_bins()),
      embeddings_(bins_.spec(), spec.config.tabm().embed_categories(),
                  "model.tabm.embed_categories") {
  if (task_ == Task::kSegmentation) {
    throw UsageError("model tabm: it predicts classes, labels or numbers, and not pixels");
  }
  std::vector<int64_t> widths(spec.config.tabm().hidden().begin(),
                              spec.config.tabm().hidden().end());
  if (widths.empty()) widths = {512, 512, 512};
  const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
  embeddings_.AddTo(*this);
  int64_t width = embeddings_.outputs();
  for (const int64_t outputs : widths) {
    const std::string number = std::to_string(layers_.size());
    const auto module = layers->register_module(number, std::make_shared<torch::nn::Module>());
    const bool is_first = layers_.empty();
    Layer& layer = layers_.emplace_back();
    layer.name = "layers." + number;
    layer.weight = module->register_parameter("weight", UniformFor(width, {outputs, width}));
    layer.r = module->register_parameter(
        "r", is_first ? Signs({members_, width}) : at::ones({members_, width}));
    layer.s = module->register_parameter("s", at::ones({members_, outputs}));
    layer.bias =
        module->register_parameter("bias", UniformFor(width, {outputs}).repeat({members_, 1}));
    width = outputs;
  }
  const auto head = register_module("head", std::make_shared<torch::nn::Module>());
  head_weight_ = head->register_parameter("weight", UniformFor(width, {members_, classes_, width}));
  head_bias_ = head->register_parameter("bias", UniformFor(width, {members_, classes_}));
}

at::Tensor TabM::Forward(const at::Tensor& input) {
  const NoAutocast plain(input.device());
  // x is [count, members, width], or [count, 1, width] before the first layer.
  const at::Tensor features = bins_.Forward(input.flatten(1));
  at::Tensor x = embeddings_.Forward(features.to(plain.dtype())).unsqueeze(1);
  for (const Layer& layer : layers_) {
    const Range range(layer.name);
    x = ops::Linear(x * layer.r.to(x.scalar_type()), layer.weight, /*bias=*/{},
                    ops::WeightLayout::kOutputsInputs);
    x = at::relu(at::addcmul(layer.bias.to(x.scalar_type()), x, layer.s.to(x.scalar_type())));
    if (dropout_ > 0) x = at::dropout(x, dropout_, is_training());
  }
  const Range range("head");
  // A batched product computes the head of each member: [members, count, classes].
  const at::Tensor outputs =
      at::baddbmm(head_bias_.to(x.scalar_type()).unsqueeze(1), x.transpose(0, 1),
                  head_weight_.to(x.scalar_type()).transpose(1, 2));
  const at::Tensor by_sample = outputs.transpose(0, 1);
  return is_training() ? by_sample.flatten(1) : Together(by_sample.to(at::kFloat));
}

std::set<std::string> TabM::StackedVectors() const {
  std::set<std::string> names{"head.bias"};
  for (const Layer& layer : layers_) {
    for (const char* part : {".r", ".s", ".bias"}) names.insert(layer.name + part);
  }
  return names;
}

at::Tensor TabM::Together(const at::Tensor& outputs) const {
  const double log_members = std::log(static_cast<double>(members_));
  const auto log_of_mean = [&](const at::Tensor& logs) {
    return at::logsumexp(logs, 1) - log_members;
  };
  switch (task_) {
    case Task::kRegression:
      return outputs.mean(1);
    case Task::kMultiLabel:
      // This is the logit of the mean probability.
      return log_of_mean(at::log_sigmoid(outputs)) - log_of_mean(at::log_sigmoid(-outputs));
    default:
      return log_of_mean(at::log_softmax(outputs, 2));
  }
}

at::Tensor TabM::LossSum(const at::Tensor& output, const at::Tensor& target) {
  if (!is_training()) return Model::LossSum(output, target);
  // Each target is repeated once for each member, because each member has an output of its own.
  std::vector<int64_t> sizes = target.sizes().vec();
  sizes.insert(sizes.begin() + 1, members_);
  const at::Tensor targets = target.unsqueeze(1).expand(sizes).flatten(0, 1);
  return Model::LossSum(output.reshape({-1, classes_}), targets) / static_cast<double>(members_);
}

}  // namespace lockstep
