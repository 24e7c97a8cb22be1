// Self-attention. Its input is one tensor with queries, keys and values side by side, as one matrix product computes
// them.
//
// out = softmax(q k^T / sqrt(size)) v for each head, size = width / heads; with `causal` a token does not see the
// tokens after it.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// qkv: [count, tokens, 3 * width]: queries, keys and values, in each a head's columns side by side;
// `heads` divides width. -> [count, tokens, width], contiguous, in qkv's type. `dropout` is that of
// the softmax's weights, 0 unless training.
//
// On the GPU, where qkv has 16 bits, a head's size is a multiple of 8, and ATen chooses flash
// attention or cuDNN's: queries, keys and values are not copied; cuDNN's writes their gradients side by
// side, those of flash attention and with dropout one kernel brings together. Everything else is the twin.
at::Tensor CausalSelfAttention(const at::Tensor& qkv, int64_t heads, double dropout);
at::Tensor SelfAttention(const at::Tensor& qkv, int64_t heads, double dropout);

// The plain ATen twin, on any device and for any type.
at::Tensor SelfAttentionTwin(const at::Tensor& qkv, int64_t heads, double dropout, bool causal);

}  // namespace lockstep::ops
