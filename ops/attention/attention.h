// Self-attention whose input is one tensor that holds queries, keys and values side by side, as one linear layer
// computes them.
//
// out = softmax(q k^T / sqrt(size)) v for each head, size = width / heads; if `causal` is true, a token does not see
// the tokens after it.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

struct AttentionOptions {
  // The probability with which the softmax's weights are dropped; 0 unless the model is training.
  double dropout = 0;
  bool causal = false;
  // Undefined (every token is seen), or a tensor that broadcasts to [count, heads, tokens, tokens]. A bool mask is true
  // where a query sees a key. Numbers are added to the scores. A mask cannot be used together with `causal`. It gets a
  // gradient only if SelfAttentionTwin() runs, which it does if the mask needs one.
  at::Tensor mask{};
};

// `qkv` is [count, tokens, 3 * width]: queries, keys and values, and in each of them the columns of a head lie side by
// side. `heads` must divide width. The result is [count, tokens, width], contiguous, in qkv's type.
//
// The fused path runs on a GPU if qkv has 16 bits, the size of a head is a multiple of 8, and ATen chooses flash
// attention or cuDNN's attention. With a mask it also requires that ATen chooses cuDNN's attention and that the mask
// needs no gradient. In all other cases SelfAttentionTwin() runs. The fused path does not copy queries, keys and
// values. Without dropout and mask, cuDNN's attention writes their gradients side by side. In the other cases of the
// fused path one kernel packs the gradients side by side.
at::Tensor SelfAttention(const at::Tensor& qkv, int64_t heads, const AttentionOptions& options);

// Computes the same with plain ATen calls, on any device and any type.
at::Tensor SelfAttentionTwin(const at::Tensor& qkv, int64_t heads, const AttentionOptions& options);

}  // namespace lockstep::ops
