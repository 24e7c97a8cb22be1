// Calls cuDNN's attention on queries, keys and values that lie side by side in one tensor. cuDNN also writes the
// gradients of the three side by side, so nothing is copied in forward or backward.
//
// The first call with a shape makes a plan (cuDNN's prepared kernels) for this shape, which takes about 0.1 s. All
// threads share the plan. The first call in each thread also makes the thread's cuDNN handle. A CUDA graph can capture
// any call that is neither the first with its shape nor the first in its thread, because such a call makes neither a
// plan nor a handle.
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
  bool deterministic = false;  // whether each run of backward must give the same bits

  auto operator<=>(const PackedAttention&) const = default;
};

// Returns whether cuDNN can compute forward and backward of `attention` for qkv's type and GPU. `qkv`, and its gradient
// d_qkv below, are contiguous 16-bit tensors [count, tokens, 3 * heads * size].
bool HasPackedAttention(const at::Tensor& qkv, const PackedAttention& attention);

// The name of the event that forward records with at::RecordFunction. The inputs of the event are qkv, heads and
// causal.
inline constexpr char kPackedAttentionEvent[] = "lockstep::attention";

// Computes forward, and returns [count, tokens, heads, size], contiguous. `log_sums` is undefined, or float32 [count,
// heads, tokens]. If `log_sums` is defined, the function writes to it the logarithm of the sum that the softmax divides
// by, for each row of scores. Backward needs these logarithms.
at::Tensor RunPackedAttention(const at::Tensor& qkv, const at::Tensor& log_sums,
                              const PackedAttention& attention);

// Computes backward, and returns d_qkv. `out` is the result of RunPackedAttention(), and `log_sums` is the tensor to
// which RunPackedAttention() wrote. `d_out`, the gradient of `out`, has the shape of `out`.
at::Tensor RunPackedAttentionBackward(const at::Tensor& qkv, const at::Tensor& out,
                                      const at::Tensor& d_out, const at::Tensor& log_sums,
                                      const PackedAttention& attention);

}  // namespace lockstep::ops
