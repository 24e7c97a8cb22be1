// The losses that MakeLossFunction() chooses from: one function for each kind of target.
//
// `class_weights` and `positive_weights` are empty if each class or label has weight 1.
#pragma once

#include <memory>
#include <vector>

#include "config/schema/loss.pb.h"
#include "data/dataset/dataset.h"
#include "models/losses/loss_function.h"

namespace lockstep {

// Returns the loss torch.nn.functional.cross_entropy with these class weights. If `gamma` is above 0, it is the focal
// loss (Lin et al. 2017): weight * (1 - p)^gamma * (-log p), where p is the predicted probability of the right class. A
// target has the weight of its class, and a pixel without a class has weight 0. `task` is kClassification or
// kSegmentation.
std::shared_ptr<LossFunction> MakeClassLoss(Task task, const std::vector<double>& class_weights,
                                            double gamma);

// Returns the loss torch.nn.functional.binary_cross_entropy_with_logits with pos_weight=positive_weights. If `gamma` is
// above 0, each label's loss is multiplied by (1 - p)^gamma, where p is the predicted probability of the label's true
// value, as in torchvision.ops.sigmoid_focal_loss.
std::shared_ptr<LossFunction> MakeLabelLoss(const std::vector<double>& positive_weights,
                                            double gamma);

// Returns the loss for regression that `config` selects: torch.nn.functional's l1_loss for MAE, its huber_loss for
// HUBER, and scikit-learn's mean_pinball_loss for QUANTILE.
std::shared_ptr<LossFunction> MakeNumberLoss(const config::Loss& config);

// Returns (1 - p)^gamma, where `logs` holds -log p. The gradient of the result is finite also where p is 1.
at::Tensor FocalShare(const at::Tensor& logs, double gamma);

// Returns `output` in float32 with the shape of `target`. If `output` has more columns, the last ones are dropped.
// Throws Error (kUsage) if the shapes differ in any other way.
at::Tensor OutputFor(const at::Tensor& output, const at::Tensor& target);

// Returns the logits as one row for each target, [targets, columns]. For kSegmentation `output` is [count, columns,
// height, width], and an `output` whose count, height or width differs from that of `target` causes an Error (kUsage).
// Other tasks' outputs are not checked.
at::Tensor LogitRows(const at::Tensor& output, const at::Tensor& target, Task task);

}  // namespace lockstep
