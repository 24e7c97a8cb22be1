#include <cmath>
#include <cstdint>

#include "ops/attention/window_attention_kernel.h"
#include "ops/attention/window_attention_tiles.cuh"
#include "ops/common/pack.cuh"
#include "ops/common/partial_sums.cuh"

namespace lockstep::ops {
namespace {

using namespace window;

constexpr float kLog2E = 1.44269504088896340736F;

// The windows first, first + stride, ... below `end`, which a thread block processes: those of one kind and one slice.
// All windows of a block have the same bias and the same mask.
struct Windows {
  int64_t first;
  int64_t stride;
  int64_t end;
};

// Returns the windows of this block, whose index is (head, kind, slice). `windows` is the number of all windows.
__device__ Windows WindowsOfBlock(int64_t windows) {
  const int64_t kinds = gridDim.y;
  return {.first = blockIdx.z * kinds + blockIdx.y, .stride = gridDim.z * kinds, .end = windows};
}

// Returns the factor 1 / sqrt(size), times log2(e), because the softmax is computed with powers of 2 instead of e.
__device__ float ScoreScale() { return kLog2E * rsqrtf(static_cast<float>(kWindowHeadSize)); }

// Sets tiles to zero.
template <int kBytes>
__device__ void Clear(char (&tiles)[kBytes]) {
  for (int i = static_cast<int>(threadIdx.x); i < kBytes / kPackBytes; i += kThreads) {
    reinterpret_cast<uint4*>(tiles)[i] = uint4{0, 0, 0, 0};
  }
}

// Starts to copy the rows of kParts matrices to kParts consecutive tiles. In `from`, adjacent rows lie `pitch` values
// apart, and adjacent matrices lie `part_pitch` values apart.
template <int kParts, typename T>
__device__ void CopyRows(uint32_t tiles, const T* from, int64_t pitch, int64_t part_pitch,
                         int tokens) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < tokens * kRowPacks; i += kThreads) {
    const int row = i / kRowPacks;
    const int pack = i % kRowPacks;
    const T* values = from + row * pitch + pack * kPackValues;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      CopyPack(tiles + part * kTileBytes + Place(row, pack), values + part * part_pitch);
    }
  }
}

// Returns the bias and the mask for this thread's four scores of a tile, times log2(e). Columns beyond the tokens get
// -inf, so these keys get no weight. Rows beyond the tokens get 0, so the weights of these queries are finite.
__device__ float4 LoadOffsets(const float* bias, const float* mask, int tile, int tokens) {
  const int64_t scores = int64_t{tokens} * tokens;
  bias += blockIdx.x * scores;
  if (mask != nullptr) mask += blockIdx.y * scores;
  float offsets[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = RowOf(i / 2);
    const int column = ColumnOf(tile) + i % 2;
    offsets[i] = column < tokens ? 0 : -INFINITY;
    if (row < tokens && column < tokens) {
      offsets[i] = bias[row * tokens + column];
      if (mask != nullptr) offsets[i] += mask[row * tokens + column];
    }
    offsets[i] *= kLog2E;
  }
  return {offsets[0], offsets[1], offsets[2], offsets[3]};
}

// Return the maximum and the sum of a row whose columns are distributed over four lanes. The argument is the maximum or
// the sum of the lane's own columns.
__device__ float MaximumOfRow(float maximum) {
  maximum = fmaxf(maximum, __shfl_xor_sync(~0U, maximum, 1));
  return fmaxf(maximum, __shfl_xor_sync(~0U, maximum, 2));
}
__device__ float SumOfRow(float sum) {
  sum += __shfl_xor_sync(~0U, sum, 1);
  return sum + __shfl_xor_sync(~0U, sum, 2);
}

__device__ float PowerOf2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// Replaces `scores`, the products of queries and keys, by the unnormalised weights of the softmax. `shares` becomes,
// for each of the thread's two rows, 1 / (the sum of the row's unnormalised weights), by which the caller must multiply
// the row's weights. offsets(tile) returns the numbers that are added to the scores of a tile.
template <int kTiles, typename Offsets>
__device__ void Weigh(float (&scores)[kTiles][4], const Offsets& offsets, float (&shares)[2]) {
  const float scale = ScoreScale();
  float maxima[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const float4 added = offsets(tile);
    scores[tile][0] = fmaf(scale, scores[tile][0], added.x);
    scores[tile][1] = fmaf(scale, scores[tile][1], added.y);
    scores[tile][2] = fmaf(scale, scores[tile][2], added.z);
    scores[tile][3] = fmaf(scale, scores[tile][3], added.w);
    maxima[0] = fmaxf(maxima[0], fmaxf(scores[tile][0], scores[tile][1]));
    maxima[1] = fmaxf(maxima[1], fmaxf(scores[tile][2], scores[tile][3]));
  }
  maxima[0] = MaximumOfRow(maxima[0]);
  maxima[1] = MaximumOfRow(maxima[1]);
  float sums[2] = {0, 0};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[tile][i] = PowerOf2(scores[tile][i] - maxima[i / 2]);
      sums[i / 2] += scores[tile][i];
    }
  }
  shares[0] = 1 / SumOfRow(sums[0]);
  shares[1] = 1 / SumOfRow(sums[1]);
}

// Writes the rounded values of the warp's rows to a score tile.
template <int kTiles>
__device__ void StoreScores(char* scores, const uint32_t (&values)[kTiles][2]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<uint32_t*>(scores + ScorePlace(RowOf(half), tile) +
                                   Lane() % 4 * sizeof(uint32_t)) = values[tile][half];
    }
  }
}

template <typename T, int kTiles>
__device__ void Round(uint32_t (&rounded)[kTiles][2], const float (&values)[kTiles][4]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    rounded[tile][0] = Rounded<T>(values[tile][0], values[tile][1]);
    rounded[tile][1] = Rounded<T>(values[tile][2], values[tile][3]);
  }
}

// Computes forward. kTiles is the number of tiles of 8 keys. While a window is computed, the next window is copied to
// shared memory.
template <typename T, int kTiles>
__global__ void __launch_bounds__(kThreads, kWindowForwardBlocks)
    WindowForward(WindowAttentionForward tensors, int64_t window_count, int tokens) {
  if (!kHasMatrixUnit) return;
  enum Tile { kQuery, kKey, kValue, kParts };
  __shared__ __align__(128) char tiles[2 * kParts * kTileBytes];
  const Windows windows = WindowsOfBlock(window_count);
  const int64_t width = int64_t{gridDim.x} * kWindowHeadSize;
  const int64_t head = int64_t{blockIdx.x} * kWindowHeadSize;
  const T* const qkv = static_cast<const T*>(tensors.qkv) + head;
  T* const out = static_cast<T*>(tensors.out) + head;
  const auto copy = [&](int64_t window, int buffer) {
    CopyRows<kParts>(SharedAddress(tiles) + buffer * kParts * kTileBytes,
                     qkv + window * tokens * 3 * width, 3 * width, width, tokens);
  };
  Clear(tiles);
  __syncthreads();
  if (windows.first < windows.end) copy(windows.first, 0);
  float4 offsets[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    offsets[tile] = LoadOffsets(tensors.bias, tensors.mask, tile, tokens);
  }
  int buffer = 0;
  for (int64_t window = windows.first; window < windows.end; window += windows.stride) {
    AwaitCopies();
    // After this barrier the window is in shared memory, and no thread uses the other buffer.
    __syncthreads();
    if (window + windows.stride < windows.end) copy(window + windows.stride, 1 - buffer);
    char* const own = tiles + buffer * kParts * kTileBytes;
    const uint32_t address = SharedAddress(own);
    float scores[kTiles][4];
    MultiplyRows<T>(scores, address + kQuery * kTileBytes, address + kKey * kTileBytes);
    float shares[2];
    Weigh(scores, [&](int tile) { return offsets[tile]; }, shares);
    uint32_t weights[kTiles][2];
    Round<T>(weights, scores);
    float mixed[kRowPacks][4];
    MultiplyRounded<T>(mixed, weights, address + kValue * kTileBytes);
    WriteRows(own + kQuery * kTileBytes, out + window * tokens * width, width, tokens, mixed,
              shares);
    buffer = 1 - buffer;
  }
}

template <typename T, int kTiles>
__global__ void __launch_bounds__(kThreads, kWindowBackwardBlocks)
    WindowBackward(WindowAttentionBackward tensors, int64_t window_count, int tokens) {
  if (!kHasMatrixUnit) return;
  enum Tile { kQuery, kKey, kValue, kQkv, kDOut = kQkv, kParts };
  extern __shared__ __align__(128) char shared[];
  auto& tiles = *reinterpret_cast<char(*)[2 * kParts * kTileBytes]>(shared);
  char* const weights = shared + sizeof(tiles);
  char* const d_scores = weights + kScoreBytes;
  const Windows windows = WindowsOfBlock(window_count);
  const int64_t width = int64_t{gridDim.x} * kWindowHeadSize;
  const int64_t head = int64_t{blockIdx.x} * kWindowHeadSize;
  const T* const qkv = static_cast<const T*>(tensors.qkv) + head;
  const T* const d_out = static_cast<const T*>(tensors.d_out) + head;
  T* const d_qkv = static_cast<T*>(tensors.d_qkv) + head;
  const auto copy = [&](int64_t window, int buffer) {
    const uint32_t to = SharedAddress(tiles) + buffer * kParts * kTileBytes;
    CopyRows<kQkv>(to, qkv + window * tokens * 3 * width, 3 * width, width, tokens);
    CopyRows<1>(to + kDOut * kTileBytes, d_out + window * tokens * width, width, 0, tokens);
  };
  Clear(tiles);
  __syncthreads();
  if (windows.first < windows.end) copy(windows.first, 0);
  // The offsets are in shared memory, because the sums for d_bias already take most of the registers. Each thread reads
  // only offsets that this thread has written.
  float4* const offsets = reinterpret_cast<float4*>(d_scores + kScoreBytes) + threadIdx.x;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    offsets[tile * kThreads] = LoadOffsets(tensors.bias, tensors.mask, tile, tokens);
  }
  float d_bias[kTiles][4] = {};
  const float scale = rsqrtf(static_cast<float>(kWindowHeadSize));
  int buffer = 0;
  for (int64_t window = windows.first; window < windows.end; window += windows.stride) {
    AwaitCopies();
    // After this barrier the window is in shared memory, and no thread uses the other buffer or the score tiles.
    __syncthreads();
    if (window + windows.stride < windows.end) copy(window + windows.stride, 1 - buffer);
    char* const own = tiles + buffer * kParts * kTileBytes;
    const uint32_t address = SharedAddress(own);
    float d_query[kRowPacks][4];
    {
      float scores[kTiles][4];
      MultiplyRows<T>(scores, address + kQuery * kTileBytes, address + kKey * kTileBytes);
      float shares[2];
      Weigh(scores, [&](int tile) { return offsets[tile * kThreads]; }, shares);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[tile][i] *= shares[i / 2];
      }
      uint32_t rounded[kTiles][2];
      Round<T>(rounded, scores);
      StoreScores(weights, rounded);
      float d[kTiles][4];  // the gradients of the weights, and then of the scores
      MultiplyRows<T>(d, address + kDOut * kTileBytes, address + kValue * kTileBytes);
      float sums[2] = {0, 0};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i / 2] += scores[tile][i] * d[tile][i];
      }
      sums[0] = SumOfRow(sums[0]);
      sums[1] = SumOfRow(sums[1]);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          d[tile][i] = scores[tile][i] * (d[tile][i] - sums[i / 2]);
          d_bias[tile][i] += d[tile][i];
        }
      }
      Round<T>(rounded, d);
      StoreScores(d_scores, rounded);
      MultiplyRounded<T>(d_query, rounded, address + kKey * kTileBytes);
    }
    // After this barrier all rows of the score tiles are written, and no thread reads the tiles of keys and values.
    // WriteRows() may therefore use these tiles for the gradients.
    __syncthreads();
    T* const to = d_qkv + window * tokens * 3 * width;
    const float scales[2] = {scale, scale};
    WriteRows(own + kKey * kTileBytes, to, 3 * width, tokens, d_query, scales);
    float products[kRowPacks][4];
    MultiplyTransposed<T>(products, SharedAddress(d_scores), address + kQuery * kTileBytes);
    WriteRows(own + kKey * kTileBytes, to + width, 3 * width, tokens, products, scales);
    MultiplyTransposed<T>(products, SharedAddress(weights), address + kDOut * kTileBytes);
    WriteRows(own + kValue * kTileBytes, to + 2 * width, 3 * width, tokens, products, {1, 1});
    buffer = 1 - buffer;
  }
  if (tensors.partials == nullptr) return;
  const int64_t partial_row = int64_t{blockIdx.z} * gridDim.y + blockIdx.y;
  float* const partial =
      tensors.partials + (partial_row * gridDim.x + blockIdx.x) * tokens * tokens;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = RowOf(i / 2);
      const int column = ColumnOf(tile) + i % 2;
      if (row < tokens && column < tokens) partial[row * tokens + column] = d_bias[tile][i];
    }
  }
}

// The bytes of shared memory of backward: two buffers of four tiles, two score tiles, and the offsets.
template <int kTiles>
constexpr int kBackwardBytes =
    2 * 4 * kTileBytes + 2 * kScoreBytes + kTiles * kThreads * static_cast<int>(sizeof(float4));

dim3 Blocks(const WindowAttentionShape& shape, int blocks_per_multiprocessor) {
  return {static_cast<unsigned>(shape.heads), static_cast<unsigned>(shape.kinds),
          static_cast<unsigned>(WindowSlices(shape, blocks_per_multiprocessor))};
}

// Calls launch() with a value of the C++ type that belongs to `type`, and with the number of tiles of 8 keys for
// `tokens` keys (7 or 8) as a std::integral_constant.
template <typename Launch>
void WithTypeAndTiles(FloatType type, int tokens, const Launch& launch) {
  With16Bits(type, [&](auto value) {
    if (tokens <= 56) {
      launch(value, std::integral_constant<int, 7>());
    } else {
      launch(value, std::integral_constant<int, 8>());
    }
  });
}

}  // namespace

void LaunchWindowAttention(const WindowAttentionForward& tensors, FloatType type,
                           const WindowAttentionShape& shape, cudaStream_t stream) {
  WithTypeAndTiles(type, shape.tokens, [&](auto value, auto tiles) {
    WindowForward<decltype(value), decltype(tiles)::value>
        <<<Blocks(shape, kWindowForwardBlocks), kThreads, 0, stream>>>(tensors, shape.windows,
                                                                       shape.tokens);
  });
}

void LaunchWindowAttentionBackward(const WindowAttentionBackward& tensors, FloatType type,
                                   const WindowAttentionShape& shape, cudaStream_t stream) {
  WithTypeAndTiles(type, shape.tokens, [&](auto value, auto tiles) {
    constexpr int kTiles = decltype(tiles)::value;
    constexpr int kBytes = kBackwardBytes<kTiles>;
    const auto kernel = WindowBackward<decltype(value), kTiles>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    kernel<<<Blocks(shape, kWindowBackwardBlocks), kThreads, kBytes, stream>>>(
        tensors, shape.windows, shape.tokens);
  });
  if (tensors.partials == nullptr) return;
  const SumsTo to[] = {{.sums = tensors.d_bias}};
  LaunchSumPartials(tensors.partials, to, WindowAttentionPartialRows(shape),
                    shape.heads * shape.tokens * shape.tokens, stream);
}

}  // namespace lockstep::ops
