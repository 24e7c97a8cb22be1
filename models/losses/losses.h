// The losses that MakeLossFunction() chooses from: one function for each kind of target.
//
// Weights are empty if each class or label weighs 1.
#pragma once

#include <memory>
#include <vector>

#include "config/schema/loss.pb.h"
#include "data/dataset/dataset.h"
#include "models/losses/loss_function.h"

namespace lockstep {

// Returns torch.nn.functional.cross_entropy with these weights. Where `gamma` is above 0 it returns the focal loss (Lin
// et al. 2017), weight (1 - p)^gamma (-log p) of the probability p of the right class. A target weighs as much as its
// class, and a pixel without a class weighs nothing. `task` is kClassification or kSegmentation.
std::shared_ptr<LossFunction> MakeClassLoss(Task task, const std::vector<double>& class_weights,
                                            double gamma);

// Returns torch.nn.functional.binary_cross_entropy_with_logits with these pos_weight. Where `gamma` is above 0 each
// label's loss is multiplied by (1 - p)^gamma, of the probability p of what is true, as
// torchvision.ops.sigmoid_focal_loss does.
std::shared_ptr<LossFunction> MakeLabelLoss(const std::vector<double>& positive_weights,
                                            double gamma);

// Returns torch.nn.functional.l1_loss for MAE, huber_loss for HUBER, and scikit-learn's mean_pinball_loss for QUANTILE.
std::shared_ptr<LossFunction> MakeNumberLoss(const config::Loss& config);

// Returns (1 - p)^gamma where `logs` are -log p. Its gradient is finite also where p is 1.
at::Tensor FocalShare(const at::Tensor& logs, double gamma);

// Returns the columns of `output` that there are targets for, float32. Throws Error (kUsage) if the shapes differ
// otherwise.
at::Tensor OutputFor(const at::Tensor& output, const at::Tensor& target);

// Returns the logits of each target as one row, [targets, columns]. For kSegmentation they lie in `output` as [count,
// columns, height, width]. Throws Error (kUsage) if the shapes differ.
at::Tensor LogitRows(const at::Tensor& output, const at::Tensor& target, Task task);

}  // namespace lockstep
