// Optimizer: SGD, Adam and AdamW through ATen's fused kernels.
//
// Promise: the updates of torch.optim.SGD, Adam and AdamW (fused=True) with the same
// hyperparameters.
//
// Invariant: everything that changes from step to step (learning rate, step count, moments) lives
// in tensors on the parameters' device, so a step never waits for the device and can be captured in
// a CUDA graph; only SGD's first step differs from the others in kind.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/reducer.h"
#include "trainer/config.pb.h"

namespace lockstep {

class Optimizer {
 public:
  // Updates what this rank has to in each of the reducer's stages, which may be nothing where the job
  // is sharded. The reducer's layout is settled; keeps no reference to it.
  Optimizer(const config::Optimizer& config, const Reducer& reducer, at::Device device);

  void SetLearningRate(double lr);

  // Begins a step.
  void BeginStep();

  // Updates the parameters of one stage from their gradients; once a step for each.
  void Update(size_t stage);

 private:
  // What the fused kernels take: lists of as many tensors each.
  struct Stage {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> momentum;     // SGD
    std::vector<at::Tensor> mean;         // Adam, AdamW: of gradients
    std::vector<at::Tensor> mean_square;  // Adam, AdamW: of their squares
    std::vector<at::Tensor> step_counts;  // Adam, AdamW: step_count_ for each
  };

  config::Optimizer config_;
  std::vector<Stage> stages_;
  at::Tensor lr_;          // float32, 0-dimensional
  at::Tensor step_count_;  // Adam, AdamW: float32, 0-dimensional
  int64_t steps_ = 0;      // SGD: in the first the momentum buffers are still empty
};

// Scales the reduced gradients in place so that their common L2 norm is at most `max_norm`, and
// returns the norm that it was, 0-dimensional, on their device (torch.nn.utils.clip_grad_norm_).
// Every rank must call it.
at::Tensor ClipGradNorm(Reducer& reducer, double max_norm);

}  // namespace lockstep
