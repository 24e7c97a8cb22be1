// The kernels of depthwise_convolution_kernel.h for large windows with stride 1. The speed of these kernels is limited
// by multiplications and not by memory: a window of 7 by 7 pixels needs 49 multiplications for each value that is read.
//
// A thread processes only two channels (a pair), whose 16-bit values are one 32-bit word. The thread's registers
// therefore have room for the sums of kHigh rows of kWide output pixels (a tile), or for the gradients of all weights
// of the two channels. An input row is loaded and converted to float32 once for all rows of the tile.
#pragma once

#include <algorithm>
#include <type_traits>

#include "base/ceil_divide.h"
#include "ops/common/block_columns.h"
#include "ops/common/pack.cuh"

namespace lockstep::ops::large_window {

constexpr int kHigh = 4;
constexpr int kMostPairs = 32;  // the maximum number of channel pairs of a block (a cache line)
constexpr int kConvolveThreads = 192;
constexpr int kGradientThreads = 128;
constexpr int kGradientBlocks = 3;  // the number of blocks that run on a multiprocessor at once

struct Shape {
  int count;
  int pairs;                  // half the number of channels
  int height, width;          // the size of the input images
  int out_height, out_width;  // the size of the output images
  int padding;
};

template <typename T>
__device__ float2 ToFloats(unsigned word) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return BFloat16Pair(word);
  } else {
    using Pair = Pack<T, 2>;
    // Without this line nvcc 12.4 does not know the size of Pair in the next one.
    static_assert(sizeof(Pair) == sizeof(word));
    const auto both = __builtin_bit_cast(Pair, word);
    return {ToFloat(both.values[0]), ToFloat(both.values[1])};
  }
}

// Converts several words to floats. The empty asm statement makes the compiler keep the floats. Otherwise the compiler
// would keep the words and convert them again at each use.
template <typename T, int kCount>
__device__ void ConvertOnce(const unsigned (&words)[kCount], float2 (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = ToFloats<T>(words[i]);
    asm volatile("" : "+f"(values[i].x), "+f"(values[i].y));
  }
}

template <typename T>
__device__ unsigned FromFloats(float2 pair) {
  const Pack<T, 2> both = {FromFloat<T>(pair.x), FromFloat<T>(pair.y)};
  return __builtin_bit_cast(unsigned, both);
}

__device__ inline void AddProduct(float2 a, float2 b, float2& sum) {
  sum.x = fmaf(a.x, b.x, sum.x);
  sum.y = fmaf(a.y, b.y, sum.y);
}

// The positions of the pixels [begin, begin + kCount) in a row of `width` pixels. For a pixel outside of the row,
// Load() reads the pixel at the row's border and then replaces it by zero. A conditional load would need a branch.
template <int kCount>
struct Pixels {
  unsigned offsets[kCount];  // in bytes
  unsigned inside = 0;       // bit i says whether pixel i lies inside of the row

  __device__ Pixels(int begin, int width, int pairs) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int pixel = begin + i;
      offsets[i] = static_cast<unsigned>(min(max(pixel, 0), width - 1) * pairs) * sizeof(unsigned);
      inside |= static_cast<unsigned>(pixel >= 0 && pixel < width) << i;
    }
  }

  // Loads the pixels. `row` points to the thread's channels in the row's first pixel.
  __device__ void Load(unsigned (&loaded)[kCount], const unsigned* row) const {
    // The asm statement hides from the compiler how `row` was computed. Otherwise the compiler would compute each
    // address from the beginning of the image instead of adding an offset to `row`.
    asm volatile("" : "+l"(row));
    const auto* const bytes = reinterpret_cast<const char*>(row);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      loaded[i] = __ldg(reinterpret_cast<const unsigned*>(bytes + offsets[i]));
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if ((inside >> i & 1) == 0) loaded[i] = 0;
    }
  }
};

// Computes out = in * weight + bias, where * is the convolution and `bias` may be nullptr. If `turns` is true, the
// window is rotated by 180 degrees, as for the gradient of the input.
template <typename T, int kSize, int kWide>
__global__ void __launch_bounds__(kConvolveThreads, 2)
    Convolve(const unsigned* in, const float* weight, const float* bias, unsigned* out, Shape shape,
             int block_pairs, bool turns) {
  constexpr int kReads = kWide + kSize - 1;
  __shared__ float2 weights[kSize * kSize][kMostPairs];
  const int first = static_cast<int>(blockIdx.x) * block_pairs;
  for (int i = static_cast<int>(threadIdx.x); i < kSize * kSize * block_pairs;
       i += static_cast<int>(blockDim.x)) {
    const int tap = i / block_pairs;
    const int pair = first + i % block_pairs;
    if (pair >= shape.pairs) continue;
    const float* const own = weight + int64_t{2} * pair * kSize * kSize;
    const int from = turns ? kSize * kSize - 1 - tap : tap;
    weights[tap][i % block_pairs] = {own[from], own[kSize * kSize + from]};
  }
  __syncthreads();
  const int own_pair = static_cast<int>(threadIdx.x) % block_pairs;
  const int pair = first + own_pair;
  if (pair >= shape.pairs) return;
  float2 added = {};
  if (bias != nullptr) added = {bias[2 * pair], bias[2 * pair + 1]};
  const int lanes = static_cast<int>(blockDim.x) / block_pairs;
  const int across = (shape.out_width + kWide - 1) / kWide;
  const int down = (shape.out_height + kHigh - 1) / kHigh;
  const int64_t tiles = int64_t{shape.count} * down * across;
  for (int64_t tile = int64_t{blockIdx.y} * lanes + threadIdx.x / block_pairs; tile < tiles;
       tile += int64_t{gridDim.y} * lanes) {
    const int left = static_cast<int>(tile % across) * kWide;
    const int top = static_cast<int>(tile / across % down) * kHigh;
    const int64_t image = tile / (int64_t{across} * down);
    const int64_t line = int64_t{shape.width} * shape.pairs;
    const unsigned* const images = in + image * shape.height * line + pair;
    const Pixels<kReads> pixels(left - shape.padding, shape.width, shape.pairs);
    const int high = min(kHigh, shape.out_height - top);
    const int last = min(top + high - 1 - shape.padding + kSize - 1, shape.height - 1);
    int row = max(top - shape.padding, 0);

    float2 sums[kHigh][kWide];
#pragma unroll
    for (int o = 0; o < kHigh; ++o) {
#pragma unroll
      for (int j = 0; j < kWide; ++j) sums[o][j] = added;
    }
    unsigned next[kReads] = {};
    if (row <= last) pixels.Load(next, images + row * line);
    for (; row <= last; ++row) {
      float2 values[kReads];
      ConvertOnce<T>(next, values);
      // The loads of the next row are in flight while this row is computed.
      if (row < last) pixels.Load(next, images + (row + 1) * line);
#pragma unroll
      for (int o = 0; o < kHigh; ++o) {
        const int k = row + shape.padding - top - o;
        if (k < 0 || k >= kSize || o >= high) continue;
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          const float2 factor = weights[k * kSize + i][own_pair];
#pragma unroll
          for (int j = 0; j < kWide; ++j) AddProduct(values[i + j], factor, sums[o][j]);
        }
      }
    }

    unsigned* const made =
        out + ((image * shape.out_height + top) * shape.out_width + left) * shape.pairs + pair;
#pragma unroll
    for (int o = 0; o < kHigh; ++o) {
      if (o >= high) break;
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        if (left + j < shape.out_width) {
          made[(int64_t{o} * shape.out_width + j) * shape.pairs] = FromFloats<T>(sums[o][j]);
        }
      }
    }
  }
}

// Writes each block's sums of the weight's gradient to partials[block][kSize * kSize][2 * pairs]. A block processes
// consecutive pieces of rows of x. Each row of dy is read for kSize rows of x. After the first of these reads, the row
// of dy is still in the L1 cache.
template <typename T, int kSize, int kWide>
__global__ void __launch_bounds__(kGradientThreads, kGradientBlocks)
    WeightGradient(const unsigned* x, const unsigned* dy, float* partials, Shape shape,
                   int block_pairs) {
  constexpr int kReads = kWide + kSize - 1;
  const int own_pair = static_cast<int>(threadIdx.x) % block_pairs;
  const int lane = static_cast<int>(threadIdx.x) / block_pairs;
  const int lanes = static_cast<int>(blockDim.x) / block_pairs;
  const int pair = static_cast<int>(blockIdx.x) * block_pairs + own_pair;
  const int across = (shape.out_width + kWide - 1) / kWide;
  const int64_t pieces = int64_t{shape.count} * shape.height * across;
  const int64_t of_block = (pieces + gridDim.y - 1) / gridDim.y;
  const int64_t end = min(pieces, (blockIdx.y + 1) * of_block);

  float2 sums[kSize][kSize] = {};
  if (pair < shape.pairs) {
    for (int64_t piece = blockIdx.y * of_block + lane; piece < end; piece += lanes) {
      const int left = static_cast<int>(piece % across) * kWide;
      const int64_t line = piece / across;  // the row's index among the rows of all images
      const int row = static_cast<int>(line % shape.height);
      const int64_t image = line / shape.height;
      unsigned loaded[kReads];
      Pixels<kReads>(left - shape.padding, shape.width, shape.pairs)
          .Load(loaded, x + line * shape.width * shape.pairs + pair);
      float2 values[kReads];
      ConvertOnce<T>(loaded, values);
      const Pixels<kWide> pixels(left, shape.out_width, shape.pairs);
      const unsigned* const images =
          dy + image * shape.out_height * shape.out_width * shape.pairs + pair;
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        const int out = row + shape.padding - k;
        if (out < 0 || out >= shape.out_height) continue;
        unsigned gradients[kWide];
        pixels.Load(gradients, images + int64_t{out} * shape.out_width * shape.pairs);
#pragma unroll
        for (int j = 0; j < kWide; ++j) {
          const float2 gradient = ToFloats<T>(gradients[j]);
#pragma unroll
          for (int i = 0; i < kSize; ++i) AddProduct(values[i + j], gradient, sums[k][i]);
        }
      }
    }
  }

  // Adds up the sums of the lanes, one row of the window at a time.
  __shared__ float2 shared[kSize][kGradientThreads];
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSize; ++i) shared[i][threadIdx.x] = sums[k][i];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kSize * block_pairs;
         i += static_cast<int>(blockDim.x)) {
      const int of = i % block_pairs;
      const int64_t to_pair = int64_t{blockIdx.x} * block_pairs + of;
      if (to_pair >= shape.pairs) continue;
      float2 sum = {};
#pragma unroll 1
      for (int other = 0; other < lanes; ++other) {
        const float2 its = shared[i / block_pairs][other * block_pairs + of];
        sum.x += its.x;
        sum.y += its.y;
      }
      const int64_t tap = int64_t{blockIdx.y} * kSize * kSize + k * kSize + i / block_pairs;
      reinterpret_cast<float2*>(partials)[tap * shape.pairs + to_pair] = sum;
    }
  }
}

// Calls launch() with the width of the tiles, 7 or 8 pixels. Tiles of this width cover the images' width with the
// fewest superfluous pixels. Networks that halve 224 pixels several times have images whose widths are multiples of 7.
template <typename Launch>
void WithWidth(int width, const Launch& launch) {
  const auto covered = [&](int wide) { return CeilDivide(width, wide) * wide; };
  if (covered(7) < covered(8)) {
    launch(std::integral_constant<int, 7>());
  } else {
    launch(std::integral_constant<int, 8>());
  }
}

template <typename T, int kSize>
void LaunchConvolve(const void* in, const float* weight, const float* bias, void* out,
                    const Shape& shape, bool turns, int multiprocessors, cudaStream_t stream) {
  const BlockColumns columns = BlockColumns::Of(shape.pairs, kMostPairs);
  const int lanes = kConvolveThreads / columns.units;
  WithWidth(shape.out_width, [&](auto wide) {
    constexpr int kWide = decltype(wide)::value;
    const auto kernel = Convolve<T, kSize, kWide>;
    const int64_t tiles = int64_t{shape.count} * CeilDivide(shape.out_height, kHigh) *
                          CeilDivide(shape.out_width, kWide);
    int resident = 1;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, lanes * columns.units, 0);
    const int64_t most =
        std::max<int64_t>(1, int64_t{multiprocessors} * std::max(resident, 1) / columns.count);
    const dim3 blocks(columns.count,
                      static_cast<unsigned>(std::min<int64_t>(CeilDivide(tiles, lanes), most)));
    kernel<<<blocks, lanes * columns.units, 0, stream>>>(static_cast<const unsigned*>(in), weight,
                                                         bias, static_cast<unsigned*>(out), shape,
                                                         columns.units, turns);
  });
}

// Returns the number of partial sums for the gradient of each weight.
inline int GradientBlocks(int count, int pairs, int multiprocessors) {
  const BlockColumns columns = BlockColumns::Of(pairs, kMostPairs);
  const int64_t resident = int64_t{multiprocessors} * kGradientBlocks / columns.count;
  return static_cast<int>(std::clamp<int64_t>(resident, 1, int64_t{count} * 16));
}

template <typename T, int kSize>
void LaunchWeightGradient(const void* x, const void* dy, float* partials, const Shape& shape,
                          int blocks, cudaStream_t stream) {
  const BlockColumns columns = BlockColumns::Of(shape.pairs, kMostPairs);
  const int threads = kGradientThreads / columns.units * columns.units;
  WithWidth(shape.out_width, [&](auto wide) {
    WeightGradient<T, kSize, decltype(wide)::value>
        <<<dim3(columns.count, blocks), threads, 0, stream>>>(static_cast<const unsigned*>(x),
                                                              static_cast<const unsigned*>(dy),
                                                              partials, shape, columns.units);
  });
}

}  // namespace lockstep::ops::large_window
