// Optimizer: SGD, Adam, AdamW, LAMB and LARS.
//
// Promise: SGD, Adam and AdamW make the same updates as the optimizers of torch.optim (fused=True) with the same
// hyperparameters. LAMB makes the updates of You et al., ICLR 2020, algorithm 2. LARS makes the updates of You et al.,
// 2017, algorithm 1.
//
// Invariants:
//   1. Every value that changes from step to step (learning rate, number of updates, moments, scale of the gradients,
//      whether the update is skipped) lies in tensors on the parameters' device. A step therefore never waits for the
//      device and can be captured in a CUDA graph.
//   2. A step that is skipped (StepValue kSkip) changes neither parameters, moments nor averages.
//   3. Averages are those of torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(ema_decay): the first update
//      copies the parameters.
//   4. If gradients may be missing (Reducer::used()), a parameter that got no gradient on any rank does not change. The
//      parameter's moments and its number of updates do not change either. PyTorch's optimizers also skip a parameter
//      whose .grad is None.
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
  // `reducer` says which shards this rank updates in each stage; with a sharded optimizer a stage may have no shard of
  // this rank. reducer.SettleLayout() must have been called. The optimizer keeps no reference to `reducer`.
  // `stacked_vectors` is the result of Model::StackedVectors(). `values` is the tensor of values that ops::DecideStep()
  // computes. `scales_gradients` says whether gradients are multiplied by the loss scale or by weights of targets.
  Optimizer(const config::Optimizer& config, const Reducer& reducer,
            const std::set<std::string>& stacked_vectors, const at::Tensor& values,
            bool scales_gradients);

  // Sets up the fused kernels. A fused kernel that updates a weight also updates the weight's rounded copy in `copies`.
  // Copies of weights that no fused kernel updates are removed from `copies`. Call it once, before the first update.
  void WriteCopies(ops::WeightCopies& copies);

  void SetLearningRate(double lr);  // for the following updates

  // Updates the parameters of one stage from their gradients, and then the parameters' averages. Call it once per step
  // for each stage, after ops::DecideStep().
  void Update(size_t stage);

  // Swaps the parameters with their averages (ema_decay). With optimizer.shard the caller must gather the parameters
  // afterwards.
  void SwapAverages();

  // Adds to `state` everything on which the next update depends, except `values`. Each of these entries exists once for
  // each parameter NAME, or for this rank's shard of the parameter; `updates` exists once:
  //  momentum.NAME                       SGD, LARS
  //  exp_avg.NAME, exp_avg_sq.NAME       Adam, AdamW, LAMB: moments, under PyTorch's names
  //  average.NAME                        with ema_decay
  //  updates                             if gradients may be missing: the number of updates of each parameter
  void AddTo(StateTree& state) const;

 private:
  // Parameters that are updated by the same rules. Each list of tensors has one tensor for each parameter, unless the
  // list is empty.
  struct Group {
    double weight_decay = 0;
    std::vector<Shard> shards;
    bool adapts = true;  // LAMB, LARS: whether updates are scaled by norms
    bool fuses = false;  // whether fused kernels can update the group
    // If gradients may be missing, the group has one parameter. Then `used` is 0 if the parameter's gradient is missing
    // in this step, and `count` is the parameter's number of updates.
    at::Tensor used;
    at::Tensor count;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> momentum;       // SGD, LARS: the momentum buffers
    std::vector<at::Tensor> mean;           // Adam, AdamW, LAMB: moving mean of gradients
    std::vector<at::Tensor> mean_square;    // Adam, AdamW, LAMB: moving mean of squared gradients
    std::vector<at::Tensor> updates;        // Adam, AdamW, LAMB: each parameter's number of updates
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
  at::Tensor lr_;                           // float32, 0-dimensional
  at::Tensor updates_, skip_, grad_scale_;  // elements of `values`, 0-dimensional
  at::Tensor counts_;  // if gradients may be missing: the entry `updates` of AddTo()
};

}  // namespace lockstep
