#include "trainer/step/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/memory_scope.h"
#include "base/tensor/foretold_gpu.h"
#include "ops/update/step_values.h"

namespace lockstep {
namespace {

static_assert(Reducer::kMostStageBuckets <= ops::kMostGradientMemories);

std::vector<at::Tensor> ZerosLike(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> zeros;
  for (const at::Tensor& tensor : tensors) zeros.push_back(at::zeros_like(tensor));
  return zeros;
}

// Returns whether the optimizer is LAMB or LARS, which scale updates by norms. ATen has no fused kernels for these
// optimizers.
bool FollowsNorms(const config::Optimizer& config) {
  return config.type() == config::Optimizer::LAMB || config.type() == config::Optimizer::LARS;
}

// Returns above / below if both are greater than 0, otherwise 1.
at::Tensor RatioOrOne(const at::Tensor& above, const at::Tensor& below) {
  return at::where(above.gt(0).logical_and(below.gt(0)), above / below, 1.0);
}

}  // namespace

Optimizer::Optimizer(const config::Optimizer& config, const Reducer& reducer,
                     const std::set<std::string>& stacked_vectors, const at::Tensor& values,
                     bool scales_gradients)
    : config_(config),
      scales_gradients_(scales_gradients),
      lr_(at::zeros({}, values.options())),
      updates_(values[ops::kUpdates]),
      skip_(values[ops::kSkip]),
      grad_scale_(values[ops::kGradScale]) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryOwner::kMoments);
  if (reducer.used().defined()) counts_ = at::zeros_like(reducer.used());
  const bool has_moments = config.type() == config::Optimizer::ADAM ||
                           config.type() == config::Optimizer::ADAMW ||
                           config.type() == config::Optimizer::LAMB;
  for (size_t i = 0; i < reducer.stages(); ++i) {
    Stage stage(2);
    stage[0].weight_decay = config.weight_decay();
    stage[1].adapts = false;
    for (const Shard& shard : reducer.shards(i)) {
      const size_t rules = KeepsFromDecay(shard, stacked_vectors) ? 1 : 0;
      if (counts_.defined()) {
        // Each parameter gets a group of its own, because its update depends on whether its own gradient is missing.
        Group own = stage[rules];
        own.parameters.clear();
        own.gradients.clear();
        own.shards.clear();
        own.used = reducer.used()[shard.index];
        own.count = counts_[shard.index];
        stage.push_back(std::move(own));
      }
      Group& group = counts_.defined() ? stage.back() : stage[rules];
      group.parameters.push_back(shard.parameter);
      group.gradients.push_back(shard.gradient);
      group.shards.push_back(shard);
    }
    std::erase_if(stage, [](const Group& group) { return group.parameters.empty(); });
    for (Group& group : stage) {
      if (has_moments) {
        group.mean = ZerosLike(group.parameters);
        group.mean_square = ZerosLike(group.parameters);
        group.updates.assign(group.parameters.size(),
                             group.count.defined() ? group.count : updates_);
      } else if (config.momentum() > 0) {
        group.momentum = ZerosLike(group.parameters);
      }
      // The fused kernels process the elements in memory order, so a parameter and its gradient must have the same
      // strides (both channels-last, for example).
      group.fuses =
          IsOnGpu(values.device()) && !group.used.defined() &&
          std::equal(group.parameters.begin(), group.parameters.end(), group.gradients.begin(),
                     [](const at::Tensor& parameter, const at::Tensor& gradient) {
                       return parameter.scalar_type() == at::kFloat &&
                              parameter.is_non_overlapping_and_dense() &&
                              parameter.strides() == gradient.strides();
                     });
      if (config.ema_decay() > 0) {
        for (const at::Tensor& parameter : group.parameters) {
          group.averages.push_back(parameter.clone());
        }
      }
    }
    stages_.push_back(std::move(stage));
  }
}

void Optimizer::AddTo(StateTree& state) const {
  const auto add = [&](const std::string& what, const Group& group,
                       const std::vector<at::Tensor>& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Shard& shard = group.shards[i];
      const std::string name = what + "." + shard.name;
      if (shard.whole.defined()) {
        state.AddPiece(name, tensors[i], shard.begin, shard.whole);
      } else {
        state.Add(name, tensors[i]);
      }
    }
  };
  if (counts_.defined()) {
    // If the checkpoint's job treated missing gradients as zeros, it has updated all parameters equally often and saved
    // no counts. Each count then continues from the number of updates in `values`.
    state.Add("updates", counts_,
              [counts = counts_, updates = updates_] { counts.copy_(updates.expand_as(counts)); });
  }
  for (const Stage& stage : stages_) {
    for (const Group& group : stage) {
      add("momentum", group, group.momentum);
      add("exp_avg", group, group.mean);
      add("exp_avg_sq", group, group.mean_square);
      add("average", group, group.averages);
    }
  }
}

void Optimizer::Fuse(Group& group, const ops::WeightCopies& copies) const {
  std::vector<ops::FusedUpdate::Parameter> parameters;
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    ops::FusedUpdate::Parameter of{.parameter = group.parameters[i],
                                   .gradient = group.gradients[i],
                                   .rounded = copies.Of(group.parameters[i])};
    if (!group.mean.empty()) {
      of.first = group.mean[i];
      of.second = group.mean_square[i];
    } else if (!group.momentum.empty()) {
      of.first = group.momentum[i];
    }
    parameters.push_back(std::move(of));
  }
  group.fused.emplace(std::move(parameters));
}

void Optimizer::WriteCopies(ops::WeightCopies& copies) {
  for (Stage& stage : stages_) {
    for (Group& group : stage) {
      if (group.fuses) {
        Fuse(group, copies);
      } else {
        for (const at::Tensor& parameter : group.parameters) copies.Forget(parameter);
      }
    }
  }
}

bool Optimizer::KeepsFromDecay(const Shard& shard,
                               const std::set<std::string>& stacked_vectors) const {
  const bool is_vector = shard.dimensions <= 1 || stacked_vectors.contains(shard.name);
  if (config_.no_decay() == config::Optimizer::VECTORS && is_vector) return true;
  for (const std::string& text : config_.no_decay_name()) {
    if (shard.name.find(text) != std::string::npos) return true;
  }
  return false;
}

void Optimizer::SetLearningRate(double lr) {
  if (std::exchange(lr_on_device_, lr) != lr) lr_.fill_(lr);
}

void Optimizer::Update(size_t index) {
  const at::NoGradGuard no_grad;
  at::Tensor share;  // of the parameters in their averages
  if (config_.ema_decay() > 0) {
    // The first update copies the parameters, so that the average has no share of the untrained ones.
    share = (1 - skip_) * at::where(updates_.le(1), 1.0, 1 - config_.ema_decay());
  }
  for (Group& group : stages_[index]) {
    // Gradients are divided by grad_scale, which ops::DecideStep() has computed from the loss scale, the targets'
    // weights and clip_norm.
    std::optional<at::Tensor> grad_scale;
    if (scales_gradients_ || config_.clip_norm() > 0) grad_scale = grad_scale_;
    const bool update_scales = group.fused || !FollowsNorms(config_);
    if (grad_scale && (!update_scales || config_.clip_value() > 0)) {
      at::_foreach_div_(group.gradients, *std::exchange(grad_scale, std::nullopt));
    }
    if (config_.clip_value() > 0) {
      at::_foreach_clamp_min_(group.gradients, -config_.clip_value());
      at::_foreach_clamp_max_(group.gradients, config_.clip_value());
    }
    at::Tensor skip = skip_;
    if (group.used.defined()) {
      const at::Tensor takes_place = group.used.gt(0) * (1 - skip_);
      skip = 1 - takes_place;
      group.count.add_(takes_place);
    }
    if (group.fused) {
      UpdateFused(group, grad_scale);
    } else if (!FollowsNorms(config_)) {
      UpdateByAten(group, grad_scale, skip);
    } else if (config_.type() == config::Optimizer::LAMB) {
      UpdateLamb(group, skip);
    } else {
      UpdateLars(group, skip);
    }
    for (size_t i = 0; i < group.averages.size(); ++i) {
      group.averages[i].lerp_(group.parameters[i], share);
    }
  }
}

void Optimizer::UpdateFused(Group& group, const std::optional<at::Tensor>& grad_scale) {
  const ops::FusedUpdate::Scalars scalars{.lr = lr_,
                                          .updates = updates_,
                                          .skip = skip_,
                                          .grad_scale = grad_scale.value_or(at::Tensor())};
  switch (config_.type()) {
    case config::Optimizer::SGD:
      group.fused->Sgd({.momentum = config_.momentum(),
                        .weight_decay = group.weight_decay,
                        .nesterov = config_.nesterov()},
                       scalars);
      break;
    case config::Optimizer::ADAM:
    case config::Optimizer::ADAMW:
      group.fused->Adam({.beta1 = config_.beta1(),
                         .beta2 = config_.beta2(),
                         .epsilon = config_.epsilon(),
                         .weight_decay = group.weight_decay,
                         .decoupled = config_.type() == config::Optimizer::ADAMW},
                        scalars);
      break;
    case config::Optimizer::LAMB:
      group.fused->Lamb({.beta1 = config_.beta1(),
                         .beta2 = config_.beta2(),
                         .epsilon = config_.epsilon(),
                         .weight_decay = group.weight_decay,
                         .adapts = group.adapts},
                        scalars);
      break;
    case config::Optimizer::LARS:
      group.fused->Lars({.momentum = config_.momentum(),
                         .weight_decay = group.weight_decay,
                         .trust = config_.trust(),
                         .adapts = group.adapts},
                        scalars);
      break;
  }
}

void Optimizer::UpdateByAten(Group& group, const std::optional<at::Tensor>& grad_scale,
                             const at::Tensor& skip) {
  if (config_.type() == config::Optimizer::SGD) {
    at::_fused_sgd_(group.parameters, group.gradients, group.momentum, group.weight_decay,
                    config_.momentum(), lr_, /*dampening=*/0, config_.nesterov(),
                    /*maximize=*/false, /*is_first_step=*/false, grad_scale, skip);
  } else if (config_.type() == config::Optimizer::ADAMW) {
    at::_fused_adamw_(group.parameters, group.gradients, group.mean, group.mean_square,
                      /*max_exp_avg_sqs=*/{}, group.updates, lr_, config_.beta1(), config_.beta2(),
                      group.weight_decay, config_.epsilon(), /*amsgrad=*/false, /*maximize=*/false,
                      grad_scale, skip);
  } else {
    at::_fused_adam_(group.parameters, group.gradients, group.mean, group.mean_square,
                     /*max_exp_avg_sqs=*/{}, group.updates, lr_, config_.beta1(), config_.beta2(),
                     group.weight_decay, config_.epsilon(), /*amsgrad=*/false, /*maximize=*/false,
                     grad_scale, skip);
  }
}

// Updates the parameters w from their gradients g by LAMB, where m and v are the moments, t is the number of updates,
// lr is the learning rate, and decay is the weight decay: m <- beta1 m + (1 - beta1) g, v <- beta2 v + (1 - beta2) g^2,
// u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay w, w <- w - lr |w|/|u| u.
void Optimizer::UpdateLamb(Group& group, const at::Tensor& skip) {
  const at::Tensor takes_place = 1 - skip;
  const at::Tensor lr = lr_ * takes_place;
  const at::Tensor t = group.updates.front().clamp_min(1);
  const at::Tensor mean_share = 1 - at::pow(config_.beta1(), t);
  const at::Tensor square_share = 1 - at::pow(config_.beta2(), t);
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    const at::Tensor& w = group.parameters[i];
    // A gradient that is not finite must not reach the moments.
    const at::Tensor g = at::where(skip.gt(0), 0.0, group.gradients[i]);
    group.mean[i].lerp_(g, takes_place * (1 - config_.beta1()));
    group.mean_square[i].lerp_(g.square(), takes_place * (1 - config_.beta2()));
    const at::Tensor u =
        (group.mean[i] / mean_share)
            .div_((group.mean_square[i] / square_share).sqrt_().add_(config_.epsilon()))
            .add_(w, group.weight_decay);
    w.sub_(u * (group.adapts ? lr * RatioOrOne(w.norm(), u.norm()) : lr));
  }
}

// Updates the parameters w from their gradients g by LARS, where v is the momentum buffer, trust is the trust
// coefficient, lr is the learning rate, and decay is the weight decay: r = trust |w| / (|g| + decay |w|), v <- momentum
// v + lr r (g + decay w), w <- w - v.
void Optimizer::UpdateLars(Group& group, const at::Tensor& skip) {
  const at::Tensor takes_place = 1 - skip;
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    const at::Tensor& w = group.parameters[i];
    const at::Tensor g = at::where(skip.gt(0), 0.0, group.gradients[i]);
    at::Tensor rate = lr_;
    if (group.adapts) {
      const at::Tensor w_norm = w.norm();
      rate = lr_ * RatioOrOne(w_norm * config_.trust(), g.norm() + w_norm * group.weight_decay);
    }
    const at::Tensor change = (g + w * group.weight_decay) * rate;
    if (group.momentum.empty()) {
      w.sub_(change * takes_place);
      continue;
    }
    at::Tensor& v = group.momentum[i];
    v.add_((v * (config_.momentum() - 1) + change) * takes_place);
    w.sub_(v * takes_place);
  }
}

void Optimizer::SwapAverages() {
  const at::NoGradGuard no_grad;
  for (Stage& stage : stages_) {
    for (Group& group : stage) {
      for (size_t i = 0; i < group.averages.size(); ++i) {
        const at::Tensor weights = group.parameters[i].clone();
        group.parameters[i].copy_(group.averages[i]);
        group.averages[i].copy_(weights);
      }
    }
  }
}

}  // namespace lockstep
