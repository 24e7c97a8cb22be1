// Declares the functions that launch the kernels of window_attention.h. All pointers point to device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "ops/common/float_type.h"

namespace lockstep::ops {

constexpr int kWindowHeadSize = 32;   // the size of a head
constexpr int kMaxWindowTokens = 64;  // the maximum number of tokens of a window
constexpr int kMaxWindowKinds = 65535;
constexpr int kLeastWindowMajor = 8;  // the lowest major compute capability of the kernels

struct WindowAttentionShape {
  int64_t windows;
  int64_t heads;
  int64_t kinds;  // the number of masks, a divisor of `windows`; 1 if there is no mask
  int tokens;
  int multiprocessors;  // the number of multiprocessors of the device
};

// The tensors of forward, all contiguous. The 16-bit tensors begin at multiples of 16 bytes.
struct WindowAttentionForward {
  const void* qkv;    // [windows, tokens, 3, heads, kWindowHeadSize]
  const float* bias;  // [heads, tokens, tokens]
  const float* mask;  // [kinds, tokens, tokens], or nullptr
  void* out;          // [windows, tokens, heads, kWindowHeadSize]
};

struct WindowAttentionBackward {
  const void* qkv;
  const float* bias;
  const float* mask;
  const void* d_out;
  void* d_qkv;
  // Scratch memory: [WindowAttentionPartialRows(shape), heads, tokens, tokens]; nullptr if d_bias is nullptr.
  float* partials;
  float* d_bias;  // [heads, tokens, tokens], or nullptr
};

// The numbers of thread blocks of forward and of backward that run on a multiprocessor at the same time.
constexpr int kWindowForwardBlocks = 4;
constexpr int kWindowBackwardBlocks = 3;

// Returns how many thread blocks share the windows of one head and one kind. Windows with the same mask are of one
// kind. All thread blocks run at the same time if the GPU can run at least shape.heads * shape.kinds thread blocks at a
// time.
inline int64_t WindowSlices(const WindowAttentionShape& shape, int blocks_per_multiprocessor) {
  const int64_t blocks = int64_t{shape.multiprocessors} * blocks_per_multiprocessor;
  return std::clamp<int64_t>(blocks / (shape.heads * shape.kinds), 1, shape.windows / shape.kinds);
}

inline int64_t WindowAttentionPartialRows(const WindowAttentionShape& shape) {
  return shape.kinds * WindowSlices(shape, kWindowBackwardBlocks);
}

// Enqueues the kernel of forward. `type` is a type of 16 bits, and the shape has at least one window.
void LaunchWindowAttention(const WindowAttentionForward& tensors, FloatType type,
                           const WindowAttentionShape& shape, cudaStream_t stream);

// Enqueues the kernels of backward. For each window and head, with P = softmax(...) of the formula in
// window_attention.h, dP = d_out v^T and dS = P (dP - the sums of P dP over the keys), the kernels compute
//   dq = dS k / sqrt(size), dk = dS^T q / sqrt(size), dv = P^T d_out, d_bias = the sum of dS over the windows
void LaunchWindowAttentionBackward(const WindowAttentionBackward& tensors, FloatType type,
                                   const WindowAttentionShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
