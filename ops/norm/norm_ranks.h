// NormRanks: the ranks that share a batch (ops/norm/batch_norm.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// The ranks that share a batch. All ranks make the same calls in the same order, with float32 tensors of the same size.
class NormRanks {
 public:
  virtual ~NormRanks() = default;
  // Returns the tensors `own`, [size], of all ranks as one tensor [ranks, size], in the order of the ranks.
  virtual at::Tensor Gather(const at::Tensor& own) = 0;
  // Replaces each value of `sums` by the sum of this value over the ranks.
  virtual void AddUp(const at::Tensor& sums) = 0;
};

}  // namespace lockstep::ops
