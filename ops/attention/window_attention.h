// Self-attention within windows that adds a learned bias to its scores, as Swin transformers have it
// (arXiv:2103.14030).
//
// out = softmax(q k^T / sqrt(size) + bias[head] + mask[window % kinds]) v for each window and head. The input has
// queries, keys and values side by side, as one matrix product computes them.
//
// A window has few tokens, so a block computes all of a window's head on the chip. Forward is one kernel that reads qkv
// once and writes out once. Backward computes the scores again, and keeps nothing but the inputs of forward for it. It
// writes the gradients of queries, keys and values side by side, and adds up the gradient of the bias in an order that
// does not depend on time, so the bits are the same each time. The softmax and all sums are float32.
//
// what can fail -> what the caller sees -> the test that shows it
//   a window, head or type that the kernels do not take -> the twin runs -> WindowAttention.TakesOtherWindows
//   a row of a mask hides all tokens -> NaN in that row, as softmax gives -> (none)
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// `qkv` is [windows, tokens, 3 * width]: queries, keys and values, and in each of them the columns of a head lie side
// by side. `heads` must divide width. `bias` is [heads, tokens, tokens] in float32. `mask` is [kinds, tokens, tokens]
// in float32, where `kinds` divides the number of windows, or undefined; it may have values of -inf. The result is
// [windows, tokens, width], contiguous, in qkv's type, with gradients for qkv and bias.
//
// WindowAttentionTwin() runs where HasWindowAttentionKernels() is false.
at::Tensor WindowAttention(const at::Tensor& qkv, int64_t heads, const at::Tensor& bias,
                           const at::Tensor& mask);

// The same operation from plain ATen calls, for any device and any type. 16-bit values are multiplied in float32.
at::Tensor WindowAttentionTwin(const at::Tensor& qkv, int64_t heads, const at::Tensor& bias,
                               const at::Tensor& mask);

// Whether the kernels compute it: on a GPU since Ampere, 16-bit values, heads of 32 values, windows of at most 64
// tokens, and a mask that needs no gradient.
bool HasWindowAttentionKernels(const at::Tensor& qkv, int64_t heads, const at::Tensor& bias,
                               const at::Tensor& mask);

}  // namespace lockstep::ops
