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

Optimizer::Optimizer(const config::Optimizer& config, std::vector<at::Tensor> parameters)
    : config_(config), parameters_(std::move(parameters)) {
  for (const at::Tensor& parameter : parameters_) gradients_.push_back(parameter.grad());
  const at::TensorOptions scalar =
      at::TensorOptions(parameters_.front().device()).dtype(at::kFloat);
  lr_ = at::full({}, config.lr(), scalar);
  if (config.type() == config::Optimizer::SGD) {
    if (config.momentum() > 0) momentum_ = ZerosLike(parameters_);
    return;
  }
  mean_ = ZerosLike(parameters_);
  mean_square_ = ZerosLike(parameters_);
  step_count_ = at::zeros({}, scalar);
  step_counts_.assign(parameters_.size(), step_count_);
}

void Optimizer::SetLearningRate(double lr) { lr_.fill_(lr); }

void Optimizer::Step() {
  const at::NoGradGuard no_grad;
  switch (config_.type()) {
    case config::Optimizer::SGD:
      at::_fused_sgd_(parameters_, gradients_, momentum_, config_.weight_decay(),
                      config_.momentum(), lr_,
                      /*dampening=*/0, config_.nesterov(), /*maximize=*/false,
                      /*is_first_step=*/!momentum_.empty() && std::exchange(first_step_, false));
      return;
    case config::Optimizer::ADAM:
      step_count_.add_(1);
      at::_fused_adam_(parameters_, gradients_, mean_, mean_square_, /*max_exp_avg_sqs=*/{},
                       step_counts_, lr_, config_.beta1(), config_.beta2(), config_.weight_decay(),
                       config_.epsilon(),
                       /*amsgrad=*/false, /*maximize=*/false);
      return;
    case config::Optimizer::ADAMW:
      step_count_.add_(1);
      at::_fused_adamw_(parameters_, gradients_, mean_, mean_square_, /*max_exp_avg_sqs=*/{},
                        step_counts_, lr_, config_.beta1(), config_.beta2(), config_.weight_decay(),
                        config_.epsilon(),
                        /*amsgrad=*/false, /*maximize=*/false);
      return;
  }
}

at::Tensor ClipGradNorm(const std::vector<at::Tensor>& gradients, double max_norm) {
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients)
    norms.push_back(at::linalg_vector_norm(gradient).to(at::kFloat));
  const at::Tensor norm = norms.size() == 1 ? norms[0] : at::linalg_vector_norm(at::stack(norms));
  const at::Tensor coefficient = (max_norm / (norm + 1e-6)).clamp_max_(1.0);
  for (const at::Tensor& gradient : gradients) gradient.mul_(coefficient);
  return norm;
}

}  // namespace lockstep
