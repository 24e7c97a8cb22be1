#include <cmath>

#include "base/ceil_divide.h"
#include "ops/common/pack.cuh"
#include "ops/token/embedding_kernel.h"

namespace lockstep::ops {
namespace {

// A block has 8 warps. In forward each warp writes a row. In backward each warp adds up a part of the block's rows.
constexpr int kLanes = 32;
constexpr int kWarps = 8;
// The number of loads that a thread has in flight.
constexpr int kAtOnce = 4;
// The number of adjacent columns that a thread processes at a time.
constexpr int kPackSize = 4;
// The number of indices c of the first dimension (`count`) that a block processes in backward.
constexpr int kCounts = 64;

template <int kSize>
__device__ void AtomicAdd(float* to, const Pack<float, kSize>& x) {
#if __CUDA_ARCH__ >= 900
  constexpr bool kVector = kSize == 4;
#else
  constexpr bool kVector = false;
#endif
  if constexpr (kVector) {
#if __CUDA_ARCH__ >= 900
    atomicAdd(reinterpret_cast<float4*>(to),
              make_float4(x.values[0], x.values[1], x.values[2], x.values[3]));
#endif
  } else {
#pragma unroll
    for (int j = 0; j < kSize; ++j) atomicAdd(to + j, x.values[j]);
  }
}

// The index of a row that does not exist.
constexpr int64_t kNoRow = -1;

// Returns the row of the weight that output row (c, l) reads, or a negative number if the index is outside of the
// weight.
__device__ int64_t RowOf(const EmbeddedRows& addend, int64_t c, int64_t l) {
  const int64_t index = addend.indices[c * addend.count_stride + l * addend.length_stride];
  return index < addend.rows ? index : kNoRow;
}

// Computes forward. Each warp writes one row of the output.
template <typename T, int kSize>
__global__ void __launch_bounds__(kLanes* kWarps) Forward(EmbeddedSum sum, T* __restrict__ out) {
  const int64_t row = blockIdx.x * int64_t{kWarps} + threadIdx.y;
  if (row >= sum.count * sum.length) return;
  const float* from[kMostEmbedded];
#pragma unroll
  for (int k = 0; k < kMostEmbedded; ++k) {
    if (k >= sum.addend_count) continue;
    const int64_t index = RowOf(sum.addends[k], row / sum.length, row % sum.length);
    from[k] = index < 0 ? nullptr : sum.addends[k].weight + index * sum.width;
  }
#pragma unroll 4
  for (int64_t i = threadIdx.x * kSize; i < sum.width; i += kLanes * kSize) {
    Pack<float, kSize> total;
#pragma unroll
    for (int k = 0; k < kMostEmbedded; ++k) {
      if (k >= sum.addend_count) continue;
      Pack<float, kSize> addend;
      if (from[k] != nullptr) {
        addend = *reinterpret_cast<const Pack<float, kSize>*>(from[k] + i);
      } else {
#pragma unroll
        for (int j = 0; j < kSize; ++j) addend.values[j] = NAN;
      }
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        total.values[j] = k == 0 ? addend.values[j] : total.values[j] + addend.values[j];
      }
    }
    Pack<T, kSize> rounded;
#pragma unroll
    for (int j = 0; j < kSize; ++j) rounded.values[j] = FromFloat<T>(total.values[j]);
    *reinterpret_cast<Pack<T, kSize>*>(out + row * sum.width + i) = rounded;
  }
}

// The sum of consecutive gradients that belong to the same row of a weight. When Add() gets a gradient for another row,
// and when Flush() is called, the sum is added to its row in memory.
template <int kSize>
struct Run {
  int64_t row;  // initially kNoRow
  Pack<float, kSize> sum;

  __device__ void Add(int64_t to, const Pack<float, kSize>& d, float* gradient, int64_t width) {
    if (to != row) {
      Flush(gradient, width);
      row = to;
      sum = d;
      return;
    }
#pragma unroll
    for (int j = 0; j < kSize; ++j) sum.values[j] += d.values[j];
  }

  // Adds the sum to its row. `gradient` points to this thread's column in row 0 of the weight's gradient.
  __device__ void Flush(float* gradient, int64_t width) {
    if (row >= 0) AtomicAdd(gradient + row * width, sum);
  }
};

// Computes backward. Block (chunk * length + l, n) processes 32 * kSize columns, beginning at n * 32 * kSize, of the
// rows (c, l) for kCounts consecutive c. Warp w adds up the rows with c = w, w + 8, ..., and then the first warp adds
// up the sums of the warps, always in the same order. If only one block adds to a row of a weight, as for the embedding
// of positions, this row therefore gets the same bits in each run.
template <typename T, int kSize>
__global__ void __launch_bounds__(kLanes* kWarps)
    Backward(EmbeddedSum sum, const T* __restrict__ d_out) {
  const int64_t l = blockIdx.x % sum.length;
  const int64_t begin = blockIdx.x / sum.length * kCounts;
  const int64_t column = (int64_t{blockIdx.y} * kLanes + threadIdx.x) * kSize;
  const int64_t end = column < sum.width ? min(begin + kCounts, sum.count) : begin;
  Run<kSize> runs[kMostEmbedded];
#pragma unroll
  for (Run<kSize>& run : runs) run.row = kNoRow;
  for (int64_t first = begin + threadIdx.y; first < end; first += kWarps * kAtOnce) {
    Pack<T, kSize> held[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t c = first + i * kWarps;
      if (c < end) {
        held[i] = *reinterpret_cast<const Pack<T, kSize>*>(
            d_out + (c * sum.length + l) * sum.width + column);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t c = first + i * kWarps;
      if (c >= end) break;
      Pack<float, kSize> d;
#pragma unroll
      for (int j = 0; j < kSize; ++j) d.values[j] = ToFloat(held[i].values[j]);
#pragma unroll
      for (int k = 0; k < kMostEmbedded; ++k) {
        const EmbeddedRows& addend = sum.addends[k];
        if (k >= sum.addend_count || addend.gradient == nullptr) continue;
        const int64_t row = RowOf(addend, c, l);
        runs[k].Add(row == addend.padding_index ? kNoRow : row, d, addend.gradient + column,
                    sum.width);
      }
    }
  }

  __shared__ Run<kSize> warps[kWarps][kLanes];
#pragma unroll
  for (int k = 0; k < kMostEmbedded; ++k) {
    const EmbeddedRows& addend = sum.addends[k];
    if (k >= sum.addend_count || addend.gradient == nullptr) continue;
    __syncthreads();  // waits until the first warp has read the previous addend's sums
    warps[threadIdx.y][threadIdx.x] = runs[k];
    __syncthreads();
    if (threadIdx.y != 0 || column >= sum.width) continue;
    Run<kSize> all = runs[k];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) {
      const Run<kSize>& run = warps[warp][threadIdx.x];
      all.Add(run.row, run.sum, addend.gradient + column, sum.width);
    }
    all.Flush(addend.gradient + column, sum.width);
  }
}

// Returns whether packs of kPackSize values may be loaded or stored at once in `rows`, the weights and the gradients.
// `bytes` is the size of a pack of `rows`.
bool ArePacked(const EmbeddedSum& sum, const void* rows, size_t bytes) {
  bool packed = sum.width % kPackSize == 0 && IsAligned(rows, bytes);
  for (const EmbeddedRows& addend : sum.addends) {
    packed = packed && IsAligned(addend.weight, 16) && IsAligned(addend.gradient, 16);
  }
  return packed;
}

template <typename T>
void ForwardOf(const EmbeddedSum& sum, void* out, cudaStream_t stream) {
  const auto kernel =
      ArePacked(sum, out, kPackSize * sizeof(T)) ? Forward<T, kPackSize> : Forward<T, 1>;
  const int64_t blocks = CeilDivide(sum.count * sum.length, kWarps);
  kernel<<<static_cast<unsigned>(blocks), dim3(kLanes, kWarps), 0, stream>>>(sum,
                                                                             static_cast<T*>(out));
}

template <typename T>
void BackwardOf(const EmbeddedSum& sum, const void* d_out, cudaStream_t stream) {
  const bool packed = ArePacked(sum, d_out, kPackSize * sizeof(T));
  const auto kernel = packed ? Backward<T, kPackSize> : Backward<T, 1>;
  const int64_t columns = kLanes * (packed ? kPackSize : 1);
  const dim3 blocks(static_cast<unsigned>(CeilDivide(sum.count, kCounts) * sum.length),
                    static_cast<unsigned>(CeilDivide(sum.width, columns)));
  kernel<<<blocks, dim3(kLanes, kWarps), 0, stream>>>(sum, static_cast<const T*>(d_out));
}

}  // namespace

void LaunchEmbeddingSum(const EmbeddedSum& sum, void* out, FloatType type, cudaStream_t stream) {
  if (sum.count * sum.length * sum.width == 0) return;
  WithType(type, [&](auto zero) { ForwardOf<decltype(zero)>(sum, out, stream); });
}

void LaunchEmbeddingSumBackward(const EmbeddedSum& sum, const void* d_out, FloatType type,
                                cudaStream_t stream) {
  if (sum.count * sum.length * sum.width == 0) return;
  WithType(type, [&](auto zero) { BackwardOf<decltype(zero)>(sum, d_out, stream); });
}

}  // namespace lockstep::ops
