// Computes self-attention on one tensor that holds queries, keys and values side by side, as one linear layer computes
// them.
//
// out = softmax(q k^T / sqrt(size)) v for each head, where q, k and v are the head's queries, keys and values, and size
// is the number of values of a head. If `causal` is true, a token does not see the tokens after it.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

struct AttentionOptions {
  // The probability with which dropout sets a weight of the softmax to 0; 0 unless the model is training.
  double dropout = 0;
  bool causal = false;
  // The mask: undefined if no mask is used, or a tensor that broadcasts to [count, heads, tokens, tokens]. A bool mask
  // is true where a query sees a key. The values of a mask of another type are added to the scores. A mask cannot be
  // used together with `causal`. SelfAttentionTwin() runs if the mask requires a gradient.
  at::Tensor mask{};
};

// Returns `out` of the formula above, [count, tokens, width], contiguous, in qkv's type. `qkv` is [count, tokens, 3 *
// width]: queries, keys and values, and in each of these three parts the columns of a head lie side by side. `heads`
// must divide width.
//
// The fused path, in which flash attention or cuDNN's attention computes the result, runs on a GPU if qkv's values have
// 16 bits, the size of a head is a multiple of 8, and ATen chooses one of these two implementations. If there is a
// mask, the fused path also requires that ATen chooses cuDNN's attention and that the mask needs no gradient. In all
// other cases SelfAttentionTwin() runs. The fused path does not copy queries, keys and values. If there is neither
// dropout nor a mask, and HasPackedAttention() is true (packed_attention.h), cuDNN's attention writes the gradients of
// queries, keys and values side by side. In the other cases of the fused path, a separate kernel packs these gradients
// side by side.
at::Tensor SelfAttention(const at::Tensor& qkv, int64_t heads, const AttentionOptions& options);

// Computes the same result as SelfAttention() with plain ATen calls, on any device and any type.
at::Tensor SelfAttentionTwin(const at::Tensor& qkv, int64_t heads, const AttentionOptions& options);

}  // namespace lockstep::ops
