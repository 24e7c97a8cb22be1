// Computes self-attention within windows, with a learned bias that is added to the scores, as in Swin transformers
// (arXiv:2103.14030).
//
// out = softmax(q k^T / sqrt(size) + bias[head] + mask[window % kinds]) v for each window and head, where q, k and v
// are the head's queries, keys and values, and size is the width of a head. The input holds queries, keys and values
// side by side, as one linear layer computes them.
//
// A window has few tokens, so a thread block computes one head of a window entirely in shared memory and registers.
// Forward is one kernel that reads qkv once and writes out once. Backward computes the scores again, so only the inputs
// of forward are kept for backward. Backward writes the gradients of queries, keys and values side by side. The
// gradient of the bias is summed in a fixed order, so each run gives the same bits. The softmax and all sums are
// float32.
//
// what can fail -> what the caller sees -> the test that shows it
//   the kernels do not support the window, head or type -> the result of WindowAttentionTwin()
//     -> WindowAttention.TakesOtherWindows
//   a row of a mask hides all tokens -> NaN in that row, as from softmax -> (none)
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// Returns `out` of the formula above. `qkv` is [windows, tokens, 3 * width]: queries, keys and values, and in each of
// these three parts the columns of a head lie side by side. `heads` must divide width. `bias` is [heads, tokens,
// tokens] in float32. `mask` is [kinds, tokens, tokens] in float32, where `kinds` divides the number of windows, or
// undefined. The values of `mask` may be -inf. The result is [windows, tokens, width], contiguous, in qkv's type, with
// gradients for qkv and bias.
//
// WindowAttentionTwin() runs if HasWindowAttentionKernels() is false.
at::Tensor WindowAttention(const at::Tensor& qkv, int64_t heads, const at::Tensor& bias,
                           const at::Tensor& mask);

// Computes the same result as WindowAttention() with plain ATen calls, on any device and any type. 16-bit values are
// multiplied in float32.
at::Tensor WindowAttentionTwin(const at::Tensor& qkv, int64_t heads, const at::Tensor& bias,
                               const at::Tensor& mask);

// Returns whether the kernels support these arguments: 16-bit values on a GPU of compute capability 8.0 or later, heads
// of 32 values, windows of at most 64 tokens, and a mask that needs no gradient.
bool HasWindowAttentionKernels(const at::Tensor& qkv, int64_t heads, const at::Tensor& bias,
                               const at::Tensor& mask);

}  // namespace lockstep::ops
