// Declares the function that launches the kernel with which attention.cc packs gradients into one tensor.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <compare>
#include <cstdint>

namespace lockstep::ops {

struct AttentionShape {
  int64_t count;
  int64_t tokens;
  int64_t heads;
  int64_t size;  // the size of a head

  auto operator<=>(const AttentionShape&) const = default;
};

// A tensor [count, heads, tokens, size] of 16-bit values. The values of a head of one token lie side by side.
struct HeadsView {
  const void* data;
  int64_t count_stride;  // all strides are counted in values
  int64_t head_stride;
  int64_t token_stride;
};

// Enqueues the kernel that sets out[c, t, p, h, :] to parts[p][c, h, t, :]. `out` is [count, tokens, 3, heads, size],
// contiguous. All pointers point to device memory.
void LaunchPackHeads(const std::array<HeadsView, 3>& parts, void* out, const AttentionShape& shape,
                     cudaStream_t stream);

}  // namespace lockstep::ops
