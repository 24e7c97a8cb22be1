// NormRanks: the ranks that share a batch (ops/norm/batch_norm.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// The ranks that share a batch. All ranks make the same calls in the same order, with float32 tensors of the same size.
class NormRanks {
 public:
  virtual ~NormRanks() = default;
  // own: [size] -> [ranks, size].
  virtual at::Tensor Gather(const at::Tensor& own) = 0;
  // sums <- sum over ranks of sums.
  virtual void AddUp(const at::Tensor& sums) = 0;
};

}  // namespace lockstep::ops
