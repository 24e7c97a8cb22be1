// Computes the last step of a sum over rows: adds up the partial sums that the blocks of a grid have written. There are
// no atomics, so each run gives the same bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/ceil_divide.h"
#include "ops/common/sums_to.h"

namespace lockstep::ops {

constexpr int kPartialColumns = 32;  // the number of columns of a block
constexpr int kPartialSlices = 32;   // the number of slices of rows, one for each warp

// Writes a column's sum to `to`, or adds the sum to the value in `to` if to.adds is true.
__device__ inline void Give(const SumsTo& to, int64_t column, float sum) {
  if (to.sums != nullptr) to.sums[column] = to.adds ? to.sums[column] + sum : sum;
}

// Returns the sum over r of from[r * stride] to the threads of the first warp, one column to each thread; the result of
// other threads has no meaning. Each warp adds up every 32nd row, and the first warp adds up the sums of the warps.
// Every thread of the block must call this function. A thread without a column must pass rows = 0.
__device__ inline float SumOfRows(const float* from, int64_t rows, int64_t stride) {
  __shared__ float slices[kPartialSlices][kPartialColumns];
  float sum = 0;
#pragma unroll 4
  for (int64_t row = threadIdx.y; row < rows; row += kPartialSlices) sum += from[row * stride];
  slices[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0) {
    for (int slice = 1; slice < kPartialSlices; ++slice) sum += slices[slice][threadIdx.x];
  }
  return sum;
}

template <int kParts>
struct PartialSumParts {
  SumsTo to[kParts];
};

// Computes, for each part p and each column c, the sum over r of partials[r, p, c], and calls Give() with parts.to[p]
// and this sum. Each part has `width` columns. `stride` is the distance between two rows.
template <int kParts>
__global__ void __launch_bounds__(kPartialSlices* kPartialColumns)
    SumPartials(const float* partials, PartialSumParts<kParts> parts, int64_t rows, int64_t width,
                int64_t stride) {
  const SumsTo to = parts.to[blockIdx.y];
  if (to.sums == nullptr) return;
  const int64_t column = int64_t{blockIdx.x} * kPartialColumns + threadIdx.x;
  const float sum =
      SumOfRows(partials + int64_t{blockIdx.y} * width + column, column < width ? rows : 0, stride);
  if (threadIdx.y == 0 && column < width) Give(to, column, sum);
}

// Returns the number of blocks for a kernel that adds up `columns` columns with SumOfRows().
inline unsigned PartialSumBlocks(int64_t columns) {
  return static_cast<unsigned>(CeilDivide(columns, kPartialColumns));
}
inline dim3 PartialSumThreads() { return {kPartialColumns, kPartialSlices}; }

// Enqueues SumPartials for partials [rows, kParts, width], if any part is wanted.
template <int kParts>
void LaunchSumPartials(const float* partials, const SumsTo (&to)[kParts], int64_t rows,
                       int64_t width, int64_t stride, cudaStream_t stream) {
  PartialSumParts<kParts> parts;
  bool is_wanted = false;
  for (int part = 0; part < kParts; ++part) {
    parts.to[part] = to[part];
    is_wanted |= to[part].sums != nullptr;
  }
  if (!is_wanted) return;
  SumPartials<<<dim3(PartialSumBlocks(width), kParts), PartialSumThreads(), 0, stream>>>(
      partials, parts, rows, width, stride);
}

// Enqueues SumPartials for partials without gaps between the rows.
template <int kParts>
void LaunchSumPartials(const float* partials, const SumsTo (&to)[kParts], int64_t rows,
                       int64_t width, cudaStream_t stream) {
  LaunchSumPartials(partials, to, rows, width, kParts * width, stream);
}

}  // namespace lockstep::ops
