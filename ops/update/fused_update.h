// Runs SGD, Adam, AdamW, LAMB and LARS for many tensors at once. The kernels also write the 16-bit copies of the
// weights (ops/common/rounded_weight.h). In the formulas w is a weight, m and v are the optimizer's state, and t is the
// number of updates, including this one.
//
// With g <- gradient / grad_scale,
// Adam:  g <- g + decay w                                (AdamW: w <- w - lr decay w instead)
//        m <- beta1 m + (1 - beta1) g,   v <- beta2 v + (1 - beta2) g^2
//        w <- w - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + epsilon)
// SGD:   g <- g + decay w,   m <- momentum m + g
//        w <- w - lr m                                   (Nesterov: w <- w - lr (g + momentum m))
// LAMB:  m and v like Adam's,   u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay w
//        w <- w - lr |w| / |u| u
// LARS:  m <- momentum m + lr r (g + decay w),   r = trust |w| / (|g| + decay |w|)
//        w <- w - m
// LAMB's |w| / |u| and LARS's r are computed for each parameter, where |x| is the L2 norm of x over the parameter. A
// ratio is 1 if its dividend or its divisor is 0, or if the rules' `adapts` is false. LAMB and LARS take three kernels:
// one kernel adds up the squares of each chunk of 4096 elements, one adds up these sums for each parameter in a fixed
// order, and one updates the weights. The other optimizers, and rules whose `adapts` is false, take one kernel.
//
// ATen's fused kernels are not used for two reasons. ATen's kernels give each thread block 65,536 elements, so a small
// model's update runs on only a few of the GPU's multiprocessors. And after ATen's kernels a separate kernel would have
// to read all weights again to write the 16-bit copies.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/update/fused_update_kernel.h"

namespace lockstep::ops {

class FusedUpdate {
 public:
  // The tensors of one parameter: float32 except `rounded`, dense, with the same strides, on one GPU. FusedUpdate keeps
  // these tensors. `first` and `second` are undefined if the optimizer does not use them. The gradients' memory may
  // move between updates, but gradients that share a storage must still share a storage afterwards. The gradients may
  // have at most kMostGradientMemories storages.
  struct Parameter {
    at::Tensor parameter;
    at::Tensor gradient;
    at::Tensor first;   // mean of gradients (Adam, LAMB), or momentum (SGD, LARS)
    at::Tensor second;  // mean of squared gradients (Adam, LAMB)
    // The 16-bit copy of the parameter, or undefined. All copies must have the same type.
    at::Tensor rounded;
  };
  // Makes a FusedUpdate for at least one parameter. Throws Error (kBug) if the gradients have more than
  // kMostGradientMemories storages.
  explicit FusedUpdate(std::vector<Parameter> parameters);

  // The numbers that the kernels read on the device. Each tensor is float32 and 0-dimensional.
  struct Scalars {
    at::Tensor lr;
    at::Tensor updates;     // t in the formulas: the number of updates, including this one
    at::Tensor skip;        // if this number is 1, the update changes nothing
    at::Tensor grad_scale;  // undefined means 1
  };
  void Adam(const AdamRules& rules, const Scalars& scalars) const;
  void Sgd(const SgdRules& rules, const Scalars& scalars) const;
  void Lamb(const LambRules& rules, const Scalars& scalars) const;
  void Lars(const LarsRules& rules, const Scalars& scalars) const;

 private:
  int32_t IndexOf(const at::Storage& memory);
  UpdateGradients Gradients() const;
  at::Tensor NewNorms() const;

  std::vector<Parameter> kept_;
  std::vector<at::Storage> memories_;  // the storages of the gradients
  at::Tensor chunks_, ends_;           // the device memory to which table_ points
  UpdateTable table_;
};

}  // namespace lockstep::ops
