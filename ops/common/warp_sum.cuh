// Sums over the lanes of a warp.
#pragma once

namespace lockstep::ops {

// Replaces each value by its sum over the warp's 32 lanes. The sum has the same bits in all lanes and each time. All
// lanes must call it. Several values can share a call, so that their shuffles do not wait for each other.
template <typename... Floats>
__device__ void SumOverWarp(Floats&... values) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    ((values += __shfl_xor_sync(~0u, values, offset)), ...);
  }
}

}  // namespace lockstep::ops
