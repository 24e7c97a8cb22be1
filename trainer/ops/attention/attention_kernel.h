// The kernel of attention.h.
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
  int64_t size;  // of a head

  auto operator<=>(const AttentionShape&) const = default;
};

// [count, heads, tokens, size] of 16-bit values, those of a head side by side.
struct HeadsView {
  const void* data;
  int64_t count_stride;  // in values, as are the others
  int64_t head_stride;
  int64_t token_stride;
};

// Enqueues out[c, t, p, h, :] = parts[p][c, h, t, :]; out: [count, tokens, 3, heads, size],
// contiguous. All pointers are the device's.
void LaunchPackHeads(const std::array<HeadsView, 3>& parts, void* out, const AttentionShape& shape,
                     cudaStream_t stream);

}  // namespace lockstep::ops
