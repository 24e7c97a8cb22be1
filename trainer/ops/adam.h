// Adam and AdamW over many tensors in one kernel:
//   g <- gradient / grad_scale                      (Adam: + decay w; AdamW: w <- w - lr decay w first)
//   m <- beta1 m + (1 - beta1) g,   v <- beta2 v + (1 - beta2) g^2
//   w <- w - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + epsilon)
//
// Why not ATen's fused kernel: it gives each block 65,536 elements, so that a small model's update runs on a
// few of the GPU's multiprocessors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trainer/ops/adam_kernel.h"

namespace lockstep::ops {

class FusedAdam {
 public:
  // Lists of as many float32 tensors on one GPU, which it keeps; those that belong together are dense and
  // have the same strides.
  FusedAdam(std::vector<at::Tensor> parameters, std::vector<at::Tensor> gradients,
            std::vector<at::Tensor> means, std::vector<at::Tensor> mean_squares);

  // lr, updates (t), skip: float32, 0-dimensional; where skip is 1 nothing changes. An undefined
  // grad_scale is 1.
  void Update(const AdamRules& rules, const at::Tensor& lr, const at::Tensor& updates,
              const at::Tensor& skip, const at::Tensor& grad_scale) const;

 private:
  std::vector<at::Tensor> kept_;
  int64_t chunks_ = 0;
  at::Tensor table_;  // of AdamChunk, on the device
};

}  // namespace lockstep::ops
