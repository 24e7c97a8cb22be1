// Optimizer: SGD, Adam, AdamW, LAMB and LARS.
//
// Promise: SGD, Adam and AdamW make the same updates as torch.optim's (fused=True) with the same hyperparameters. LAMB
// and LARS make the updates of You et al., ICLR 2020, algorithm 2, and You et al., 2017, algorithm 1.
//
// Invariants:
//   1. Everything that changes from step to step (learning rate, number of updates, moments, whether and how gradients
//      are scaled) lies in tensors on the parameters' device. A step therefore never waits for the device and can be
//      captured in a CUDA graph.
//   2. A step that is skipped (StepValue kSkip) changes neither parameters, moments nor averages.
//   3. If gradients may be missing (Reducer::used()), a parameter that got no gradient on any rank does not change. Its
//      moments and its number of updates do not change either. PyTorch does the same if .grad is None.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ckpt/state_tree.h"
#include "comm/reduce/reducer.h"
#include "config/schema/optimizer.pb.h"
#include "ops/common/rounded_weight.h"
#include "ops/update/fused_update.h"

namespace lockstep {

class Optimizer {
 public:
  // `reducer` says which shards this rank updates in each stage; in a sharded job a stage may have no shard of this
  // rank. SettleLayout() must have been called. The optimizer keeps no reference to `reducer`. `stacked_vectors` are
  // Model::StackedVectors(). `values` are the values that ops::DecideStep() computes. `scales_gradients` says that
  // gradients are multiplied by the loss scale or by weights.
  Optimizer(const config::Optimizer& config, const Reducer& reducer,
            const std::set<std::string>& stacked_vectors, const at::Tensor& values,
            bool scales_gradients);

  // Sets up the fused kernels, which also update the rounded copies of the weights that they update. Copies of other
  // weights are removed from `copies`. Call it once, before the first update.
  void WriteCopies(ops::WeightCopies& copies);

  void SetLearningRate(double lr);

  // Updates the parameters of one stage, and their averages, from their gradients. Call it once per step for each
  // stage, after DecideStep().
  void Update(size_t stage);

  // Exchanges the parameters with their averages (ema_decay). With optimizer.shard the caller must then gather the
  // parameters.
  void SwapAverages();

  // Adds the state on which the next update depends, without `values`. There is one entry for each parameter, or for
  // this rank's part of it:
  //  momentum.NAME                       SGD, LARS
  //  exp_avg.NAME, exp_avg_sq.NAME       Adam, AdamW, LAMB: moments, under PyTorch's names
  //  average.NAME                        with ema_decay
  //  updates                             if gradients may be missing: the number of updates of each parameter
  void AddTo(StateTree& state) const;

 private:
  // Parameters that are updated by the same rules. Each list has one tensor for each parameter.
  struct Group {
    double weight_decay = 0;
    std::vector<Shard> shards;
    bool adapts = true;  // LAMB, LARS: whether the update is scaled by the parameter's norm
    bool fuses = false;  // whether fused kernels update the group: on a GPU, float32
    // If gradients may be missing, the group has one parameter. `used` is then 0 if its gradient is missing, and
    // `count` is its number of updates.
    at::Tensor used;
    at::Tensor count;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> momentum;       // SGD, LARS
    std::vector<at::Tensor> mean;           // Adam, AdamW, LAMB: moving mean of gradients
    std::vector<at::Tensor> mean_square;    // Adam, AdamW, LAMB: moving mean of squared gradients
    std::vector<at::Tensor> updates;        // Adam, AdamW: the number of updates of each parameter
    std::vector<at::Tensor> averages;       // with ema_decay
    std::optional<ops::FusedUpdate> fused;  // set by WriteCopies() if `fuses`
  };
  using Stage = std::vector<Group>;

  bool KeepsFromDecay(const Shard& shard, const std::set<std::string>& stacked_vectors) const;
  void Fuse(Group& group, const ops::WeightCopies& copies) const;
  void UpdateFused(Group& group, const std::optional<at::Tensor>& grad_scale);
  void UpdateByAten(Group& group, const std::optional<at::Tensor>& grad_scale,
                    const at::Tensor& skip);
  void UpdateLamb(Group& group, const at::Tensor& skip);
  void UpdateLars(Group& group, const at::Tensor& skip);

  config::Optimizer config_;
  bool scales_gradients_;
  std::vector<Stage> stages_;
  double lr_on_device_ = -1;
  at::Tensor lr_;                           // float32, 0-dimensional, as the next three are
  at::Tensor updates_, skip_, grad_scale_;  // elements of `values`
  at::Tensor counts_;  // the entry `updates` of AddTo(), if gradients may be missing
};

}  // namespace lockstep
