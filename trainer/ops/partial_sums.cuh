// The end of a sum over rows that the blocks of a grid have shared: no atomics, so the same bits
// each time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/sums_to.h"

namespace lockstep::ops {

constexpr int kPartialColumns = 32;  // of a block
constexpr int kPartialSlices = 32;   // a warp each

// Puts a column's sum where it is to go.
__device__ inline void Give(const SumsTo& to, int64_t column, float sum) {
  if (to.sums != nullptr) to.sums[column] = to.adds ? to.sums[column] + sum : sum;
}

// parts[p][c] = sum over r of partials[r, p, c], of parts of `width` columns each. A warp adds up every
// 32nd row, the first warp what all have.
template <int kParts>
struct PartialSumParts {
  SumsTo to[kParts];
};

template <int kParts>
__global__ void __launch_bounds__(kPartialSlices* kPartialColumns)
    SumPartials(const float* partials, PartialSumParts<kParts> parts, int64_t rows, int64_t width) {
  __shared__ float slices[kPartialSlices][kPartialColumns];
  const SumsTo to = parts.to[blockIdx.y];
  if (to.sums == nullptr) return;
  const int64_t column = int64_t{blockIdx.x} * kPartialColumns + threadIdx.x;
  float sum = 0;
  if (column < width) {
    const float* from = partials + int64_t{blockIdx.y} * width + column;
#pragma unroll 4
    for (int64_t row = threadIdx.y; row < rows; row += kPartialSlices) {
      sum += from[row * kParts * width];
    }
  }
  slices[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int slice = 1; slice < kPartialSlices; ++slice) sum += slices[slice][threadIdx.x];
  Give(to, column, sum);
}

// Enqueues SumPartials of [rows, kParts, width].
template <int kParts>
void LaunchSumPartials(const float* partials, const SumsTo (&to)[kParts], int64_t rows,
                       int64_t width, cudaStream_t stream) {
  PartialSumParts<kParts> parts;
  for (int part = 0; part < kParts; ++part) parts.to[part] = to[part];
  const dim3 blocks(static_cast<unsigned>((width + kPartialColumns - 1) / kPartialColumns), kParts);
  SumPartials<<<blocks, dim3(kPartialColumns, kPartialSlices), 0, stream>>>(partials, parts, rows,
                                                                            width);
}

}  // namespace lockstep::ops
