// Adam, AdamW and SGD over many tensors in one kernel, which also rounds what it has updated.
//
// Adam:  g <- gradient / grad_scale                      (Adam: + decay w; AdamW: w <- w - lr decay w first)
//        m <- beta1 m + (1 - beta1) g,   v <- beta2 v + (1 - beta2) g^2
//        w <- w - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + epsilon)
// SGD:   g <- gradient / grad_scale + decay w,   m <- momentum m + g
//        w <- w - lr m                                   (Nesterov: w <- w - lr (g + momentum m))
//
// Why not ATen's fused kernels: they give each block 65,536 elements, so that a small model's update runs on
// a few of the GPU's multiprocessors; and rounding the weights anew reads them all once more.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trainer/ops/fused_update_kernel.h"

namespace lockstep::ops {

class FusedUpdate {
 public:
  // Float32 tensors on one GPU, dense and of the same strides, which it keeps.
  struct Parameter {
    at::Tensor parameter;
    at::Tensor gradient;
    at::Tensor first;    // Adam: mean; SGD: momentum, or undefined
    at::Tensor second;   // Adam: mean square
    at::Tensor rounded;  // the parameter in 16 bits, one type for all, or undefined
  };
  explicit FusedUpdate(std::vector<Parameter> parameters);

  // Float32, 0-dimensional.
  struct Scalars {
    at::Tensor lr;
    at::Tensor updates;     // t
    at::Tensor skip;        // where it is 1 nothing changes
    at::Tensor grad_scale;  // undefined for 1
  };
  void Adam(const AdamRules& rules, const Scalars& scalars) const;
  void Sgd(const SgdRules& rules, const Scalars& scalars) const;

 private:
  std::vector<Parameter> kept_;
  FloatType rounded_ = FloatType::kBFloat16;
  int64_t chunks_ = 0;
  at::Tensor table_;  // of UpdateChunk, on the device
};

}  // namespace lockstep::ops
