// Sums over the lanes of a block of [packs, lanes] threads, whose lanes have packs of the same columns.
#pragma once

#include <cstdint>

namespace lockstep::ops {

// Calls give(c, sum) for each column c of the block that is below `end`. The block is number `block` of those that lie
// side by side, `sums` are a thread's own, zeros if it has none, and a block has at most kThreads threads. All of them
// must call it. Lanes are added in their order, so the bits are the same each time.
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
