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

#include "trainer/config.pb.h"

namespace lockstep {

class Optimizer {
 public:
  // `parameters` have their gradients, whose memory stays where it is.
  Optimizer(const config::Optimizer& config, std::vector<at::Tensor> parameters);

  void SetLearningRate(double lr);

  // One update from the parameters' gradients.
  void Step();

 private:
  config::Optimizer config_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradients_;
  at::Tensor lr_;                        // float32, 0-dimensional
  std::vector<at::Tensor> momentum_;     // SGD
  bool first_step_ = true;               // SGD: the momentum buffers are still empty
  std::vector<at::Tensor> mean_;         // Adam, AdamW: of gradients
  std::vector<at::Tensor> mean_square_;  // Adam, AdamW: of their squares
  at::Tensor step_count_;                // Adam, AdamW: float32, 0-dimensional
  std::vector<at::Tensor>
      step_counts_;  // the same tensor for each parameter, as the kernels want it
};

// Scales `gradients` in place so that their common L2 norm is at most `max_norm`, and returns the
// norm that it was, 0-dimensional, on their device (torch.nn.utils.clip_grad_norm_).
at::Tensor ClipGradNorm(const std::vector<at::Tensor>& gradients, double max_norm);

}  // namespace lockstep
