// The embedding of a sequence in one pass over its tokens. The weights are read in float32.
//
// out[c, l] = token_weight[tokens[c, l]] + position_weight[l], rounded once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace lockstep::ops {

// `tokens` is int64 [count, length]. `token_weight` is float32 [vocabulary, width]. `position_weight` is float32
// [positions, width], with positions >= length. The result is [count, length, width] in `dtype`, with float32 gradients
// for both weights. On the GPU the embedding of a token outside [0, vocabulary) is NaN, and its gradient is dropped.
// The gradients of token_weight are added up by atomics, in any order, unless ATen is set to be deterministic. Throws
// c10::Error if the sizes do not fit.
at::Tensor TokenAndPositionEmbedding(const at::Tensor& tokens, const at::Tensor& token_weight,
                                     const at::Tensor& position_weight, at::ScalarType dtype);

// The same operation from plain ATen calls, for any device. Tests compare the kernels with it. The CPU uses it, and a
// GPU uses it for other types.
at::Tensor TokenAndPositionEmbeddingTwin(const at::Tensor& tokens, const at::Tensor& token_weight,
                                         const at::Tensor& position_weight, at::ScalarType dtype);

}  // namespace lockstep::ops
