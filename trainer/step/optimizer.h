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
#include <vector>

#include "ckpt/state_tree.h"
#include "comm/reduce/reducer.h"
#include "trainer/config/schema/optimizer.pb.h"
#include "trainer/ops/common/rounded_weight.h"
#include "trainer/ops/update/fused_update.h"

namespace lockstep {

class Optimizer {
 public:
  // Updates what this rank has to in each of the reducer's stages, which may be nothing where the job
  // is sharded. The reducer's layout is settled; keeps no reference to it. `values`: what
  // ops::DecideStep() decides. `scales_loss`: gradients come multiplied by the loss scale.
  Optimizer(const config::Optimizer& config, const Reducer& reducer, const at::Tensor& values,
            bool scales_loss);

  // Sets the fused kernels up, which also update the copies of their weights; other copies are forgotten. Once,
  // before the first update.
  void WriteCopies(ops::WeightCopies& copies);

  void SetLearningRate(double lr);

  // Updates the parameters of one stage from their gradients, and their averages; once a step for each,
  // after DecideStep().
  void Update(size_t stage);

  // Exchanges the parameters with their averages (ema_decay). With `shard` they must be gathered after
  // that.
  void SwapAverages();

  // What the next update depends on, without `values`: of each parameter, or this rank's part of it,
  //   momentum.NAME                       SGD, LARS
  //   exp_avg.NAME, exp_avg_sq.NAME       Adam, AdamW, LAMB: moments, under PyTorch's names
  //   average.NAME                        with ema_decay
  //   updates                             where gradients may be missing: of each parameter, their number
  void AddTo(StateTree& state) const;

 private:
  // Parameters with the same rules, as the fused kernels take them: lists of as many tensors each.
  struct Group {
    double weight_decay = 0;
    std::vector<Shard> shards;
    bool adapts = true;  // LAMB, LARS: to the parameter's norm
    bool fuses = false;  // on a GPU, of float32
    // Of the one parameter, where its gradient may be missing: 0 if it is, and its number of updates.
    at::Tensor used;
    at::Tensor count;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> momentum;       // SGD, LARS
    std::vector<at::Tensor> mean;           // Adam, AdamW, LAMB: of gradients
    std::vector<at::Tensor> mean_square;    // likewise: of their squares
    std::vector<at::Tensor> updates;        // Adam, AdamW: their number for each
    std::vector<at::Tensor> averages;       // with ema_decay
    std::optional<ops::FusedUpdate> fused;  // where it fuses, once copies are known
  };
  using Stage = std::vector<Group>;

  bool KeepsFromDecay(const Shard& shard) const;
  void Fuse(Group& group, const ops::WeightCopies& copies) const;
  void UpdateFused(Group& group, const std::optional<at::Tensor>& grad_scale);
  void UpdateByAten(Group& group, const std::optional<at::Tensor>& grad_scale,
                    const at::Tensor& skip);
  void UpdateLamb(Group& group, const at::Tensor& skip);
  void UpdateLars(Group& group, const at::Tensor& skip);

  config::Optimizer config_;
  bool scales_loss_;
  std::vector<Stage> stages_;
  double lr_on_device_ = -1;
  at::Tensor lr_;                           // float32, 0-dimensional, as the next three
  at::Tensor updates_, skip_, grad_scale_;  // of `values`
  at::Tensor counts_;  // where gradients may be missing: as `updates` of AddTo()
};

}  // namespace lockstep
