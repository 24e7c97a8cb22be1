#include "models/model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"
#include "base/tensor/foretold_gpu.h"
#include "models/batch_norm.h"
#include "models/losses/losses.h"
#include "models/losses/make_loss.h"
#include "ops/token/cross_entropy.h"

namespace lockstep {

namespace {

// Returns the sum of the cross-entropy losses of logits [rows, classes], with one integer target for each row.
at::Tensor CrossEntropyOf(const at::Tensor& logits, const at::Tensor& target, int64_t ignored,
                          double label_smoothing) {
  at::Tensor labels = target.flatten().to(at::kLong);
  if (!IsOnGpu(logits.device())) {
    return at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Sum, ignored,
                                  label_smoothing);
  }
  if (ignored != ops::kIgnoredTarget) {
    labels = labels.masked_fill(labels == ignored, ops::kIgnoredTarget);
  }
  // CrossEntropySum() writes the gradient over the logits. In training the logits are copied, because the model may
  // need them elsewhere.
  const bool trains = at::GradMode::is_enabled() && logits.requires_grad();
  return ops::CrossEntropySum(trains ? logits.clone(at::MemoryFormat::Contiguous) : logits, labels,
                              logits.size(1), label_smoothing);
}

}  // namespace

void ModelSpec::RequireNumbers() const {
  if (!tokens) return;
  throw UsageError("model {}: it takes numbers or pixels, and the samples are tokens: take gpt2",
                   config.name());
}

void ModelSpec::RequireImages() const {
  RequireNumbers();
  if (input_shape.size() == 3) return;
  throw UsageError("model {}: inputs of shape [{}] are no images of [channels, height, width]",
                   config.name(), fmt::join(input_shape, ", "));
}

void Model::MoveTo(at::Device device, bool rounds) {
  to(device);
  if (loss_) loss_->MoveTo(device);
  if (!IsOnGpu(device)) return;
  for (const at::Tensor& weight : ConvolutionWeights(rounds)) {
    weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
}

bool Model::SharesStatistics() const {
  return std::ranges::any_of(modules(), [](const std::shared_ptr<torch::nn::Module>& module) {
    return dynamic_cast<const BatchNorm*>(module.get()) != nullptr;
  });
}

std::vector<at::Tensor> Model::ConvolutionWeights(bool rounds) const {
  std::vector<at::Tensor> weights;
  if (!rounds) return weights;
  for (const auto& module : modules()) {
    const auto* convolution = module->as<torch::nn::Conv2dImpl>();
    if (convolution != nullptr && convolution->weight.defined()) {
      weights.push_back(convolution->weight);
    }
  }
  return weights;
}

at::Tensor Model::WeightSum(const at::Tensor& target) const {
  return loss_ ? loss_->WeightSum(target) : at::Tensor();
}

at::Tensor Model::LossSum(const at::Tensor& output, const at::Tensor& target) {
  if (loss_) {
    used_loss_ = true;
    return loss_->Sum(output, target, label_smoothing());
  }
  switch (task_) {
    case Task::kClassification:
    case Task::kLanguage:
      return CrossEntropyOf(LogitRows(output, target, task_), target, ops::kIgnoredTarget,
                            label_smoothing());
    case Task::kSegmentation:
      return CrossEntropyOf(LogitRows(output, target, task_), target, kIgnoredPixel,
                            label_smoothing());
    case Task::kMultiLabel:
      return at::binary_cross_entropy_with_logits(OutputFor(output, target), target, /*weight=*/{},
                                                  /*pos_weight=*/{}, at::Reduction::Sum);
    case Task::kRegression:
      return at::mse_loss(OutputFor(output, target), target, at::Reduction::Sum);
  }
  throw BugError("task {}", static_cast<int>(task_));
}

std::vector<at::Tensor> Model::Checkpointed(const std::vector<at::Tensor>& inputs,
                                            ActivationBlock block) const {
  if (!checkpoints_activations_) return block(inputs);
  return CheckpointActivations(inputs, std::move(block));
}

at::Tensor Model::Checkpointed(const at::Tensor& input,
                               std::function<at::Tensor(const at::Tensor&)> block) const {
  using Tensors = std::vector<at::Tensor>;
  return Checkpointed(Tensors{input}, [block = std::move(block)](const Tensors& inputs) {
    return Tensors{block(inputs[0])};
  })[0];
}

std::vector<NamedTensor> Model::State() const {
  std::vector<NamedTensor> state;
  for (const auto& item : named_parameters()) state.push_back({item.key(), item.value()});
  for (const auto& item : named_buffers()) state.push_back({item.key(), item.value()});
  return state;
}

void Models::Add(const std::string& name, Factory factory, Reads reads) {
  factories_[name] = std::move(factory);
  foretellable_.erase(name);
  if (reads == Reads::kNothing) foretellable_.insert(name);
}

std::shared_ptr<Model> Models::Make(const ModelSpec& spec) const {
  const std::string& name = spec.config.name();
  const auto factory = factories_.find(name);
  if (factory == factories_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, unused] : factories_) names.push_back(known);
    throw UsageError("model.name: unknown model \"{}\"{} (known: {})", name,
                     DidYouMean(name, names), fmt::join(names, ", "));
  }
  std::shared_ptr<Model> model = factory->second(spec);
  model->task_ = spec.task;
  model->loss_ = MakeLossFunction(spec.loss, spec.task, spec.classes);
  model->label_smoothing_ = spec.config.label_smoothing();
  model->checkpoints_activations_ = spec.config.activation_checkpointing();
  spec.options.RequireAllAsked(fmt::format("model \"{}\"", name));
  return model;
}

}  // namespace lockstep
