// RowsNorm(): LayerNorm or RMSNorm of an exported graph's values, with the sum before it.
//
// Under autocast a norm gives float32 values, and a residual network's sums are float32 beside branches of 16 bits.
// Whoever rounds the norm's result to 16 bits again (linear, conv2d) gets it rounded by the norm itself; the others get
// float32 values, from the same kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

struct RowsNormWeights {
  at::Tensor weight;  // [width]
  at::Tensor bias;    // likewise; undefined: RMSNorm
  double epsilon = 0;
};

// Who uses a norm's result.
struct RowsNormUses {
  bool rounded = false;  // somebody who rounds it under autocast
  bool wide = false;     // somebody who does not
};

// `wide` is the result of LibTorch's norm, and `rounded` the same for users that would round it. Without such users, or
// without autocast to 16 bits, both are the same tensor.
struct RowsNormResult {
  at::Tensor sum, wide, rounded;
};

// Who uses the result of the node, a norm or the last of its operations, and which of them round it.
RowsNormUses UsesOf(const Rewriter& rewriter, int64_t node, const std::vector<int64_t>& rounding);

// Normalises x + branch over the last dimension; `branch` is undefined if nothing is added.
RowsNormResult RowsNorm(const at::Tensor& x, const at::Tensor& branch,
                        const RowsNormWeights& weights, const RowsNormUses& uses);

}  // namespace lockstep::exported
