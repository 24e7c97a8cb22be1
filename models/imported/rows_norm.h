// RowsNorm(): LayerNorm or RMSNorm in an exported graph, with the residual sum before it.
//
// Under autocast a norm returns float32, and a residual network's sums are float32, while its branches have 16 bits.
// For users of the norm that round its result to 16 bits (linear, conv2d), the norm's kernel writes the rounded result
// itself; the same kernel writes float32 values for the other users.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

struct RowsNormWeights {
  at::Tensor weight;  // [width]
  at::Tensor bias;    // [width]; undefined: RMSNorm
  double epsilon = 0;
};

// Says which kinds of nodes use a norm's result.
struct RowsNormUses {
  bool rounded = false;  // at least one user rounds the result to 16 bits under autocast
  bool wide = false;     // at least one user does not round the result
};

// `sum` is the input of the norm. `wide` is the result as LibTorch's norm returns it, and `rounded` is the result for
// users that would round it. `wide` and `rounded` are the same tensor if there are no such users, or without autocast
// to 16 bits.
struct RowsNormResult {
  at::Tensor sum, wide, rounded;
};

// Returns the uses of the result of `node`, which is a norm or the last operation of a norm. `rounding` holds the users
// that round the result.
RowsNormUses UsesOf(const Rewriter& rewriter, int64_t node, const std::vector<int64_t>& rounding);

// Returns the norm of x + branch over the last dimension; `branch` is undefined if nothing is added.
RowsNormResult RowsNorm(const at::Tensor& x, const at::Tensor& branch,
                        const RowsNormWeights& weights, const RowsNormUses& uses);

}  // namespace lockstep::exported
