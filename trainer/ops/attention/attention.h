// Self-attention. Its input is one tensor with queries, keys and values side by side, as one matrix product computes
// them.
//
// out = softmax(q k^T / sqrt(size)) v for each head, size = width / heads; with `causal` a token does not see the
// tokens after it.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// `qkv` is [count, tokens, 3 * width]: queries, keys and values, and in each of them the columns of a head lie side by
// side. `heads` must divide width. The result is [count, tokens, width], contiguous, in qkv's type. `dropout` is the
// probability with which the softmax's weights are dropped; it must be 0 if the model is not training.
//
// On a GPU, if qkv has 16 bits, the size of a head is a multiple of 8, and ATen chooses flash attention or cuDNN's
// attention, then queries, keys and values are not copied. cuDNN's attention writes their gradients side by side. After
// flash attention, or with dropout, one kernel packs the gradients. In all other cases SelfAttentionTwin() runs.
at::Tensor CausalSelfAttention(const at::Tensor& qkv, int64_t heads, double dropout);
at::Tensor SelfAttention(const at::Tensor& qkv, int64_t heads, double dropout);

// The same operation from plain ATen calls, for any device and any type.
at::Tensor SelfAttentionTwin(const at::Tensor& qkv, int64_t heads, double dropout, bool causal);

}  // namespace lockstep::ops
