// Self-attention. Its input is one tensor with queries, keys and values side by side, as one matrix product computes
// them.
//
// out = softmax(q k^T / sqrt(size)) v for each head, size = width / heads; with `causal` a token does not see the
// tokens after it.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

struct AttentionOptions {
  double dropout =
      0;  // the probability with which the softmax's weights are dropped; 0 unless the model is training
  bool causal = false;
  // Broadcasts to [count, heads, tokens, tokens]: bool, true where a token is seen, or numbers that are added to the
  // scores; undefined: every token is seen. It excludes `causal`. It has a gradient only where SelfAttentionTwin()
  // runs.
  at::Tensor mask{};
};

// `qkv` is [count, tokens, 3 * width]: queries, keys and values, and in each of them the columns of a head lie side by
// side. `heads` must divide width. The result is [count, tokens, width], contiguous, in qkv's type.
//
// On a GPU, if qkv has 16 bits, the size of a head is a multiple of 8, and ATen chooses flash attention or cuDNN's
// attention, then queries, keys and values are not copied. cuDNN's attention writes their gradients side by side. After
// flash attention, or with dropout or a mask, one kernel packs the gradients. With a mask only cuDNN's attention is
// called so, and only if the mask needs no gradient. In all other cases SelfAttentionTwin() runs.
at::Tensor SelfAttention(const at::Tensor& qkv, int64_t heads, const AttentionOptions& options);

// The same operation from plain ATen calls, for any device and any type.
at::Tensor SelfAttentionTwin(const at::Tensor& qkv, int64_t heads, const AttentionOptions& options);

}  // namespace lockstep::ops
