// Computes sums over the lanes of a warp.
#pragma once

namespace lockstep::ops {

// Replaces each value by the sum of this value over the warp's 32 lanes. The sum has the same bits in all lanes and in
// each run. All lanes must call this function. With several values in one call, the shuffles of one value do not wait
// for those of another value.
template <typename... Floats>
__device__ void SumOverWarp(Floats&... values) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    ((values += __shfl_xor_sync(~0u, values, offset)), ...);
  }
}

}  // namespace lockstep::ops
