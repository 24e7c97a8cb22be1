// Calls cuDNN's attention on queries, keys and values that lie side by side in one tensor. cuDNN also writes their
// gradients side by side, so nothing is copied in forward or backward.
//
// When a shape first occurs, a plan (cuDNN's prepared kernels) is made for it in about 0.1 s, and all threads share the
// plan. After that, only the first call in each thread sets something up, namely the thread's handle of cuDNN. A later
// call can therefore be captured in a CUDA graph.
//
// what can fail -> what the caller sees -> the test that shows it
//   cuDNN has no such attention for this GPU -> false from HasPackedAttention() -> attention_test.cc,
//     which tests the implementation that is chosen on the test machine's GPU
//   cuDNN refuses a plan that it made -> c10::Error with cuDNN's message -> (none)
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/attention/attention_kernel.h"

namespace lockstep::ops {

struct PackedAttention {
  AttentionShape shape;
  bool causal = false;
  bool deterministic = false;  // whether backward must give the same bits each time

  auto operator<=>(const PackedAttention&) const = default;
};

// Returns whether cuDNN can compute forward and backward for qkv's type and GPU. `qkv`, and its gradient d_qkv below,
// are contiguous 16-bit tensors [count, tokens, 3 * heads * size].
bool HasPackedAttention(const at::Tensor& qkv, const PackedAttention& attention);

// The name of forward for at::RecordFunction. The inputs of this event are qkv, heads and causal.
inline constexpr char kPackedAttentionEvent[] = "lockstep::attention";

// Computes forward, and returns [count, tokens, heads, size], contiguous. If `log_sums` is defined, it must be float32
// [count, heads, tokens]. The function then writes the logarithms of the softmax's sums to it, which backward needs.
at::Tensor RunPackedAttention(const at::Tensor& qkv, const at::Tensor& log_sums,
                              const PackedAttention& attention);

// Computes backward, and returns d_qkv. `out` and `log_sums` are those of forward, and `d_out`, the gradient of `out`,
// has its shape.
at::Tensor RunPackedAttentionBackward(const at::Tensor& qkv, const at::Tensor& out,
                                      const at::Tensor& d_out, const at::Tensor& log_sums,
                                      const PackedAttention& attention);

}  // namespace lockstep::ops
