// The matrices in shared memory that the kernels of window_attention.cu use, and the functions with which a warp
// multiplies them.
//
// A tile has 64 rows, one for each token of a window. A row holds the 32 values of one head, and the rows without a
// token are zeros. A score tile has a row for each query and a column for each key, 64 by 64. Warp w computes the rows
// 16 w to 16 w + 15 of a product.
//
// A warp's 16 rows of a product are distributed over its lanes in the layout of the instruction mma.m16n8k16. For each
// 8 columns, lane 4 g + t holds four values: columns 2 t and 2 t + 1 of row g, and the same columns of row g + 8.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "ops/attention/window_attention_kernel.h"
#include "ops/common/matrix_unit.cuh"
#include "ops/common/shared_address.cuh"

namespace lockstep::ops::window {

constexpr int kRows = kMaxWindowTokens;
constexpr int kRowsOfWarp = 16;
constexpr int kThreads = kRows / kRowsOfWarp * 32;

// A warp loads matrices from shared memory in groups of 8 packs of 16 bytes, which belong to consecutive rows. The
// packs are in different memory banks if their indices in shared memory, counted in packs, are different modulo 8.
constexpr int kPackBytes = 16;
constexpr int kPackValues = 8;
constexpr int kRowPacks = kWindowHeadSize / kPackValues;
constexpr int kTileBytes = kRows * kRowPacks * kPackBytes;
constexpr int kScorePacks = kRows / kPackValues;
constexpr int kScoreBytes = kRows * kScorePacks * kPackBytes;

// Returns the offset, in bytes, of a row's pack in a tile. Two rows of 4 packs fill all memory banks. The order of the
// packs in a row changes every two rows, so that the packs with the same index in 8 consecutive rows lie in different
// banks.
__device__ inline uint32_t Place(int row, int pack) {
  return (row * kRowPacks + (pack ^ (row / 2 % kRowPacks))) * kPackBytes;
}

// Returns the offset, in bytes, of a row's pack in a score tile, in which a row has 8 packs.
__device__ inline uint32_t ScorePlace(int row, int pack) {
  return (row * kScorePacks + (pack ^ (row % kScorePacks))) * kPackBytes;
}

// Return the lane of this thread, the first row of the thread's warp, and the rows and the first columns of the values
// that this thread holds.
__device__ inline int Lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int FirstRow() { return static_cast<int>(threadIdx.x) / 32 * kRowsOfWarp; }
__device__ inline int RowOf(int half) { return FirstRow() + Lane() / 4 + 8 * half; }
__device__ inline int ColumnOf(int tile) { return 8 * tile + Lane() % 4 * 2; }

// Starts a copy of a pack to shared memory.
__device__ inline void CopyPack(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// Waits until all copies that this thread started have arrived.
__device__ inline void AwaitCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Rounds two values and returns them in one word, with `first` in the lower half.
template <typename T>
__device__ uint32_t Rounded(float first, float second) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

template <int kTiles>
__device__ void SetToZero(float (&products)[kTiles][4]) {
#pragma unroll
  for (auto& product : products) {
#pragma unroll
    for (float& value : product) value = 0;
  }
}

// Computes products = left right^T. `left` and `right` are tiles; only the first 8 kTiles rows of `right` are used.
template <typename T, int kTiles>
__device__ void MultiplyRows(float (&products)[kTiles][4], uint32_t left, uint32_t right) {
  uint32_t a[2][4];
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    LoadMatrices(a[step], left + Place(FirstRow() + Lane() % 16, 2 * step + Lane() / 16));
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    uint32_t b[4];
    LoadMatrices(b, right + Place(8 * tile + Lane() % 8, Lane() / 8));
#pragma unroll
    for (float& product : products[tile]) product = 0;
    MultiplyAdd<T>(products[tile], a[0], b[0], b[1]);
    MultiplyAdd<T>(products[tile], a[1], b[2], b[3]);
  }
}

// Computes products += left right for 16 columns of `left`. These columns are multiplied by the 16 rows of the tile
// `right` that begin at `row`.
template <typename T>
__device__ void MultiplySixteen(float (&products)[kRowPacks][4], const uint32_t (&left)[4],
                                uint32_t right, int row) {
#pragma unroll
  for (int tile = 0; tile < kRowPacks; tile += 2) {
    uint32_t b[4];
    LoadTransposed(b, right + Place(row + Lane() % 16, tile + Lane() / 16));
    MultiplyAdd<T>(products[tile], left, b[0], b[1]);
    MultiplyAdd<T>(products[tile + 1], left, b[2], b[3]);
  }
}

// Computes products = left right. `left` holds the rounded values of an earlier product: for each 8 columns, the values
// of this thread's two rows. `right` is a tile, of which only the first 8 kTiles rows are used.
template <typename T, int kTiles>
__device__ void MultiplyRounded(float (&products)[kRowPacks][4], const uint32_t (&left)[kTiles][2],
                                uint32_t right) {
  SetToZero(products);
#pragma unroll
  for (int tile = 0; tile + 1 < kTiles; tile += 2) {
    const uint32_t a[4] = {left[tile][0], left[tile][1], left[tile + 1][0], left[tile + 1][1]};
    MultiplySixteen<T>(products, a, right, 8 * tile);
  }
  if constexpr (kTiles % 2 == 1) {
    uint32_t b[4];
    LoadTransposed(b, right + Place(8 * (kTiles - 1) + Lane() % 8, Lane() / 8));
#pragma unroll
    for (int tile = 0; tile < kRowPacks; ++tile) {
      MultiplyAdd<T>(products[tile], left[kTiles - 1], b[tile]);
    }
  }
}

// Computes products = scores^T right, where `scores` is a score tile and `right` is a tile. The rows of the result are
// keys.
template <typename T>
__device__ void MultiplyTransposed(float (&products)[kRowPacks][4], uint32_t scores,
                                   uint32_t right) {
  SetToZero(products);
#pragma unroll
  for (int row = 0; row < kRows; row += 16) {
    uint32_t a[4];
    LoadTransposed(a, scores + ScorePlace(row + Lane() / 16 * 8 + Lane() % 8,
                                          FirstRow() / kPackValues + Lane() / 8 % 2));
    MultiplySixteen<T>(products, a, right, row);
  }
}

// Writes the warp's rows of products, times `scales`, to `to`, where adjacent rows lie `pitch` values apart. Only the
// first `tokens` rows are written. The values first go to the same rows of `tile`, so that a row is written to `to` in
// packs of 16 bytes. No other warp may use these rows of `tile` during the call.
template <typename T>
__device__ void WriteRows(char* tile, T* to, int64_t pitch, int tokens,
                          const float (&products)[kRowPacks][4], const float (&scales)[2]) {
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = RowOf(half);
    if (row >= tokens) continue;  // the tile's row stays zero
#pragma unroll
    for (int pack = 0; pack < kRowPacks; ++pack) {
      *reinterpret_cast<uint32_t*>(tile + Place(row, pack) + Lane() % 4 * sizeof(uint32_t)) =
          Rounded<T>(scales[half] * products[pack][2 * half],
                     scales[half] * products[pack][2 * half + 1]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kRowsOfWarp * kRowPacks; i += 32) {
    const int row = FirstRow() + (i + Lane()) / kRowPacks;
    const int pack = Lane() % kRowPacks;
    if (row >= tokens) continue;
    *reinterpret_cast<uint4*>(to + row * pitch + pack * kPackValues) =
        *reinterpret_cast<const uint4*>(tile + Place(row, pack));
  }
}

}  // namespace lockstep::ops::window
