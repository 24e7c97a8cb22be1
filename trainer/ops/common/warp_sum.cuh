// Sums over the lanes of a warp.
#pragma once

namespace lockstep::ops {

// Each value becomes the sum of what the warp's 32 lanes have of it, the same bits in each of them and each time. All
// lanes must call it. Several values share a call, so that their shuffles do not wait for each other.
template <typename... Floats>
__device__ void SumOverWarp(Floats&... values) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    ((values += __shfl_xor_sync(~0u, values, offset)), ...);
  }
}

}  // namespace lockstep::ops
