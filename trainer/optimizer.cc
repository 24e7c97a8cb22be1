#include "trainer/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

namespace lockstep {
namespace {

std::vector<at::Tensor> ZerosLike(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> zeros;
  for (const at::Tensor& tensor : tensors) zeros.push_back(at::zeros_like(tensor.detach()));
  return zeros;
}

}  // namespace

Optimizer::Optimizer(const config::Optimizer& config, const Reducer& reducer, at::Device device)
    : config_(config) {
  const at::TensorOptions scalar = at::TensorOptions(device).dtype(at::kFloat);
  lr_ = at::full({}, config.lr(), scalar);
  step_count_ = at::zeros({}, scalar);
  for (size_t i = 0; i < reducer.stages(); ++i) {
    Stage stage;
    for (const Shard& shard : reducer.shards(i)) {
      stage.parameters.push_back(shard.parameter);
      stage.gradients.push_back(shard.gradient);
    }
    if (config.type() != config::Optimizer::SGD) {
      stage.mean = ZerosLike(stage.parameters);
      stage.mean_square = ZerosLike(stage.parameters);
      stage.step_counts.assign(stage.parameters.size(), step_count_);
    } else if (config.momentum() > 0) {
      stage.momentum = ZerosLike(stage.parameters);
    }
    stages_.push_back(std::move(stage));
  }
}

void Optimizer::SetLearningRate(double lr) { lr_.fill_(lr); }

void Optimizer::BeginStep() {
  ++steps_;
  if (config_.type() != config::Optimizer::SGD) step_count_.add_(1);
}

void Optimizer::Update(size_t index) {
  Stage& stage = stages_[index];
  if (stage.parameters.empty()) return;
  const at::NoGradGuard no_grad;
  switch (config_.type()) {
    case config::Optimizer::SGD:
      at::_fused_sgd_(stage.parameters, stage.gradients, stage.momentum, config_.weight_decay(),
                      config_.momentum(), lr_, /*dampening=*/0, config_.nesterov(),
                      /*maximize=*/false,
                      /*is_first_step=*/!stage.momentum.empty() && steps_ == 1);
      return;
    case config::Optimizer::ADAM:
      at::_fused_adam_(stage.parameters, stage.gradients, stage.mean, stage.mean_square,
                       /*max_exp_avg_sqs=*/{}, stage.step_counts, lr_, config_.beta1(),
                       config_.beta2(), config_.weight_decay(), config_.epsilon(),
                       /*amsgrad=*/false, /*maximize=*/false);
      return;
    case config::Optimizer::ADAMW:
      at::_fused_adamw_(stage.parameters, stage.gradients, stage.mean, stage.mean_square,
                        /*max_exp_avg_sqs=*/{}, stage.step_counts, lr_, config_.beta1(),
                        config_.beta2(), config_.weight_decay(), config_.epsilon(),
                        /*amsgrad=*/false, /*maximize=*/false);
      return;
  }
}

at::Tensor ClipGradNorm(Reducer& reducer, double max_norm) {
  const at::Tensor norm = reducer.Norm();
  reducer.Scale((max_norm / (norm + 1e-6)).clamp_max_(1.0));
  return norm;
}

}  // namespace lockstep
