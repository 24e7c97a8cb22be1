// The embedding of a sequence in one pass over its tokens. The weights are read in float32.
//
// out[c, l] = token_weight[tokens[c, l]] + position_weight[l], rounded once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace lockstep::ops {

// tokens: int64 [count, length]; token_weight: float32 [vocabulary, width]; position_weight:
// float32 [positions, width], positions >= length. -> [count, length, width] in `dtype`, with
// gradients in float32 for both weights. On the GPU a token outside [0, vocabulary) gives NaN, and
// its gradient goes to no token's weight. Those gradients are added up by atomics, in any order,
// unless ATen is told to be deterministic. Throws c10::Error where sizes do not fit.
at::Tensor TokenAndPositionEmbedding(const at::Tensor& tokens, const at::Tensor& token_weight,
                                     const at::Tensor& position_weight, at::ScalarType dtype);

// The plain ATen twin, on any device: what the kernels are compared with, and the path of the CPU
// and of other types.
at::Tensor TokenAndPositionEmbeddingTwin(const at::Tensor& tokens, const at::Tensor& token_weight,
                                         const at::Tensor& position_weight, at::ScalarType dtype);

}  // namespace lockstep::ops
