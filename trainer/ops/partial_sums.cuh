// The end of a sum over rows that the blocks of a grid have shared: no atomics, so the same bits
// each time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace lockstep::ops {

constexpr int kPartialColumns = 32;  // of a block
constexpr int kPartialSlices = 32;   // a warp each

// sums[c] = sum over r of partials[r, c]. A warp adds up every 32nd row, the first warp what all
// have.
static __global__ void __launch_bounds__(kPartialSlices* kPartialColumns)
    SumPartials(const float* partials, float* sums, int64_t rows, int64_t columns) {
  __shared__ float slices[kPartialSlices][kPartialColumns];
  const int64_t column = int64_t{blockIdx.x} * kPartialColumns + threadIdx.x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = threadIdx.y; row < rows; row += kPartialSlices) {
      sum += partials[row * columns + column];
    }
  }
  slices[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int slice = 1; slice < kPartialSlices; ++slice) sum += slices[slice][threadIdx.x];
  sums[column] = sum;
}

// Enqueues SumPartials of [rows, columns].
static inline void LaunchSumPartials(const float* partials, float* sums, int64_t rows,
                                     int64_t columns, cudaStream_t stream) {
  const int64_t blocks = (columns + kPartialColumns - 1) / kPartialColumns;
  SumPartials<<<static_cast<unsigned>(blocks), dim3(kPartialColumns, kPartialSlices), 0, stream>>>(
      partials, sums, rows, columns);
}

}  // namespace lockstep::ops
