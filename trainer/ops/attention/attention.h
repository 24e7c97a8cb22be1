// Self-attention. Its input has queries, keys and values side by side in one tensor, as one matrix product gives them.
//
// out = softmax(q k^T / sqrt(size)) v for each head, size = width / heads; causal: a token sees
// none after it.
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
