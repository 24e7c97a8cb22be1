// Computes sums over the lanes of a block of [packs, lanes] threads, where threadIdx.x is the pack of columns and
// threadIdx.y is the lane.
#pragma once

#include <cstdint>

namespace lockstep::ops {

// Sums each column over the lanes, and calls give(c, sum) for each of the block's columns c with c < `end`. `block` is
// the block's index among the blocks that divide the columns. `sums` are the calling thread's sums, or zeros if the
// thread has none. A block has at most kThreads threads, and all threads of the block must call this function. The
// lanes are added in a fixed order, so each run gives the same bits.
template <int kThreads, int kPack, typename Give>
__device__ void SumLanes(const float (&sums)[kPack], int64_t block, int64_t end, const Give& give) {
  __shared__ float lanes[kThreads * kPack];
  const auto width = static_cast<int>(blockDim.x) * kPack;
  const auto self = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
#pragma unroll
  for (int j = 0; j < kPack; ++j) lanes[self * kPack + j] = sums[j];
  __syncthreads();
  for (int i = self; i < width; i += static_cast<int>(blockDim.x * blockDim.y)) {
    const int64_t column = block * width + i;
    if (column >= end) continue;
    float sum = 0;
    for (int lane = 0; lane < static_cast<int>(blockDim.y); ++lane) sum += lanes[lane * width + i];
    give(column, sum);
  }
}

}  // namespace lockstep::ops
