// How blocks share a matrix: each has a tile of 32 packs of columns and a slice of the rows, of which
// each warp takes every 8th. A slice's sums over its rows are a row of partial sums.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/ceil_divide.h"
#include "trainer/ops/common/pack.cuh"
#include "trainer/ops/common/partial_sums.cuh"
#include "trainer/ops/common/rows_shape.h"
#include "trainer/ops/common/strided_rows.cuh"

namespace lockstep::ops {

constexpr int kSliceThreads = 256;
constexpr int kSliceWarps = kSliceThreads / 32;

// The warp's, of so many rows.
__device__ inline StridedRows RowsOfWarp(int64_t rows) {
  return {.first = int64_t{blockIdx.y} * kSliceWarps + threadIdx.x / 32,
          .stride = int64_t{gridDim.y} * kSliceWarps,
          .end = rows};
}

// partials[slice, c] = the sum of what the block's warps have for column c; a thread has `sums` of its
// pack's columns.
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

// Whether rows are made of packs of 16 bytes.
template <typename T, typename... Pointers>
bool IsPacked(const RowsShape& shape, const Pointers*... pointers) {
  return shape.width % Pack<T>::kSize == 0 && (IsAligned(pointers) && ...);
}

// At least one; else no more than leave each warp a row and each multiprocessor so many blocks.
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
