// Divides a matrix among thread blocks. Each block has a tile of 32 packs of columns and a slice of the rows. Each of
// its 8 warps processes every 8th row of the slice. The sums over the rows of a slice are one row of partial sums.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/ceil_divide.h"
#include "ops/common/pack.cuh"
#include "ops/common/partial_sums.cuh"
#include "ops/common/rows_shape.h"
#include "ops/common/strided_rows.cuh"

namespace lockstep::ops {

constexpr int kSliceThreads = 256;
constexpr int kSliceWarps = kSliceThreads / 32;

// Returns the rows that belong to this warp.
__device__ inline StridedRows RowsOfWarp(int64_t rows) {
  return {.first = int64_t{blockIdx.y} * kSliceWarps + threadIdx.x / 32,
          .stride = int64_t{gridDim.y} * kSliceWarps,
          .end = rows};
}

// Computes partials[slice, c] = the sum of `sums` over the block's warps for column c. `sums` are the thread's sums for
// the columns of the thread's pack.
template <int kSize>
__device__ void SumWarps(const float (&sums)[kSize], float* partials, int64_t width) {
  __shared__ float warps[kSliceWarps][32 * kSize];
#pragma unroll
  for (int j = 0; j < kSize; ++j) warps[threadIdx.x / 32][threadIdx.x % 32 * kSize + j] = sums[j];
  __syncthreads();
  for (int i = threadIdx.x; i < 32 * kSize; i += kSliceThreads) {
    const int64_t column = int64_t{blockIdx.x} * 32 * kSize + i;
    if (column >= width) return;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kSliceWarps; ++warp) sum += warps[warp][i];
    partials[blockIdx.y * width + column] = sum;
  }
}

// Returns whether the rows consist of whole packs of 16 bytes, and all pointers are multiples of 16 bytes.
template <typename T, typename... Pointers>
bool IsPacked(const RowsShape& shape, const Pointers*... pointers) {
  return shape.width % Pack<T>::kSize == 0 && (IsAligned(pointers) && ...);
}

// Returns the number of slices: as many as possible, on the conditions that each block has rows and that no
// multiprocessor has more than `blocks_per_multiprocessor` blocks. Returns 1 if no number fulfils both conditions.
inline int64_t SliceCount(const RowsShape& shape, int64_t pack_size,
                          int blocks_per_multiprocessor) {
  const int64_t tiles = CeilDivide(shape.width, 32 * pack_size);
  const int64_t blocks = int64_t{shape.multiprocessors} * blocks_per_multiprocessor;
  return std::max(int64_t{1}, std::min(blocks / tiles, CeilDivide(shape.rows, kSliceWarps)));
}

inline dim3 SlicesGrid(const RowsShape& shape, int64_t pack_size, int64_t slices) {
  return {static_cast<unsigned>(CeilDivide(shape.width, 32 * pack_size)),
          static_cast<unsigned>(slices)};
}

}  // namespace lockstep::ops
