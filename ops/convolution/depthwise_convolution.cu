#include <algorithm>
#include <type_traits>

#include "base/ceil_divide.h"
#include "ops/common/block_columns.h"
#include "ops/common/floats.cuh"
#include "ops/common/pack.cuh"
#include "ops/convolution/depthwise_convolution_kernel.h"
#include "ops/convolution/depthwise_large_window.cuh"

namespace lockstep::ops {
namespace {

constexpr int kPack = 8;    // the number of channels of one 16-byte load
constexpr int kPacks = 8;   // the maximum number of packs of a block (a cache line)
constexpr int kLanes = 32;  // the number of threads for each pack of a block of Convolve()
constexpr int kThreads = kPacks * kLanes;
constexpr int kAcross = 4;  // the number of adjacent output pixels that a thread computes

using Channels = Floats<kPack>;

__device__ void AddProducts(const Channels& a, const Channels& b, Channels& sums) {
#pragma unroll
  for (int c = 0; c < kPack; ++c) {
    sums.values[c] = fmaf(a.values[c], b.values[c], sums.values[c]);
  }
}

BlockColumns ColumnsOf(int channels) { return BlockColumns::Of(channels / kPack, kPacks); }

// Says how a thread computes kAcross adjacent output pixels from one row of the input. The thread reads kReads pixels,
// beginning at pixel First(). Input pixel i contributes to output pixel j with the weight at column WeightAt(i, j) of
// the window's row. If WeightAt(i, j) is negative, input pixel i does not contribute to output pixel j.
//
// Window is for the convolution itself. With stride 1 and the window rotated by 180 degrees, Window is also for the
// gradient of the convolution's input.
template <int kSize, int kStride>
struct Window {
  static constexpr int kReads = (kAcross - 1) * kStride + kSize;
  static __device__ int First(int out, int padding) { return out * kStride - padding; }
  static constexpr __device__ int WeightAt(int i, int j) {
    const int k = i - j * kStride;
    return k < kSize ? k : -1;
  }
  // Returns the input row that row `k` of the window reads for output row `out`, or -1 if this input row lies outside
  // of the image.
  static __device__ int Row(int out, int k, int padding, int rows) {
    const int row = out * kStride - padding + k;
    return row >= 0 && row < rows ? row : -1;
  }
};

// Has the same functions as Window, for the gradient of the input of a convolution with stride 2. A thread computes
// four adjacent pixels of dx, the first of which has an even index. Column k of the window contributes to pixel j only
// if j + padding - k is even. kOdd says whether the padding is odd, which shifts the pixels of dy that a thread reads.
template <int kSize, bool kOdd>
struct StridedGradient {
  static constexpr int kReads = (kAcross - 1 + kSize - 1 + kOdd) / 2 + 1;
  static __device__ int First(int out, int padding) {
    // An arithmetic shift rounds down.
    return (out + padding - (kSize - 1)) >> 1;
  }
  static constexpr __device__ int WeightAt(int i, int j) {
    const int k = j + kSize - 1 + kOdd - 2 * i;
    return k >= 0 && k < kSize ? k : -1;
  }
  static __device__ int Row(int out, int k, int padding, int rows) {
    const int twice = out + padding - k;
    const int row = twice >> 1;
    return (twice & 1) == 0 && row >= 0 && row < rows ? row : -1;
  }
};

struct ImagesShape {
  int count, channels;
  int in_height, in_width;    // the size of the images that are read
  int out_height, out_width;  // the size of the images that are written
  int padding;
  bool turns;  // whether the window is rotated by 180 degrees
};

// The first of the kAcross pixels of one row that a lane of a block computes.
struct Place {
  int64_t image;
  int row;
  int left;  // the index of the first pixel in the row
};

// Distributes the lanes of blocks over images. Usually a block's lanes form a tile of 8 by 4 lanes, so that input rows
// that several lanes read are in the L1 cache. If rows are so short that many lanes of a tile would lie outside of the
// image, the lanes follow one another along the rows instead.
struct Tiles {
  static constexpr int kHigh = 8;
  static constexpr int kWide = kLanes / kHigh;
  int chunks;        // the number of lanes for a row
  int down, across;  // the numbers of rows and of columns of tiles; 0 if there are no tiles
  int64_t all;       // the number of tiles, or of groups of kLanes lanes

  static Tiles Of(const ImagesShape& shape) {
    const int chunks = static_cast<int>(CeilDivide(shape.out_width, kAcross));
    if (chunks <= 2 * kWide) {
      const int64_t lanes = int64_t{shape.count} * shape.out_height * chunks;
      return {chunks, 0, 0, CeilDivide(lanes, int64_t{kLanes})};
    }
    const int down = static_cast<int>(CeilDivide(shape.out_height, kHigh));
    const int across = static_cast<int>(CeilDivide(chunks, kWide));
    return {chunks, down, across, int64_t{shape.count} * down * across};
  }

  __device__ Place At(int64_t tile, int lane, const ImagesShape& shape) const {
    if (across == 0) {
      const int64_t at = tile * kLanes + lane;
      const int64_t line = at / chunks;
      return {line / shape.out_height, static_cast<int>(line % shape.out_height),
              static_cast<int>(at % chunks) * kAcross};
    }
    const int column = static_cast<int>(tile % across) * kWide + lane % kWide;
    const int row = static_cast<int>(tile / across % down) * kHigh + lane / kWide;
    return {tile / (int64_t{across} * down), row, column * kAcross};
  }
};

// Loads pack `pack` of each of the pixels [begin, begin + kCount) of a row of `width` pixels. `row` is the index of the
// row's first pixel among the pixels of all images. Pixels outside of the row become zeros.
template <int kCount>
__device__ void LoadPixels(uint4 (&loaded)[kCount], const void* images, int64_t row, int begin,
                           int width, int packs, int pack) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int pixel = begin + i;
    const bool is_inside = pixel >= 0 && pixel < width;
    loaded[i] = is_inside ? Load(images, (row + pixel) * packs + pack) : uint4{};
  }
}

template <typename T, typename Reads, int kSize>
__global__ void __launch_bounds__(kThreads)
    Convolve(const void* in, const float* weight, const float* bias, void* out, ImagesShape shape,
             Tiles tiles) {
  const int packs = shape.channels / kPack;
  const int pack = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  // The shape of `weights` is [kSize * kSize][packs of the block][kPack].
  __shared__ __align__(16) float weights[kSize * kSize * kPacks * kPack];
  const int first = static_cast<int>(blockIdx.x * blockDim.x) * kPack;
  const int channels = static_cast<int>(blockDim.x) * kPack;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int i = thread; i < kSize * kSize * channels;
       i += static_cast<int>(blockDim.x * blockDim.y)) {
    const int channel = first + i % channels;
    const int k = shape.turns ? kSize * kSize - 1 - i / channels : i / channels;
    weights[i] = channel < shape.channels ? weight[channel * kSize * kSize + k] : 0;
  }
  __syncthreads();
  if (pack >= packs) return;
  Channels added = {};
  if (bias != nullptr) added = LoadFloats<kPack>(bias, pack);
  const int lane = static_cast<int>(threadIdx.y);
  for (int64_t tile = blockIdx.y; tile < tiles.all; tile += gridDim.y) {
    const auto [image, row, left] = tiles.At(tile, lane, shape);
    if (image >= shape.count || row >= shape.out_height || left >= shape.out_width) continue;
    Channels sums[kAcross];
#pragma unroll
    for (int j = 0; j < kAcross; ++j) sums[j] = added;
    const int begin = Reads::First(left, shape.padding);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const int from = Reads::Row(row, k, shape.padding, shape.in_height);
      if (from < 0) continue;
      uint4 loaded[Reads::kReads];
      LoadPixels(loaded, in, (image * shape.in_height + from) * shape.in_width, begin,
                 shape.in_width, packs, pack);
      Channels of_row[kSize];
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        of_row[i] = LoadFloats<kPack>(weights, (k * kSize + i) * static_cast<int>(blockDim.x) +
                                                   static_cast<int>(threadIdx.x));
      }
#pragma unroll
      for (int i = 0; i < Reads::kReads; ++i) {
        const Channels values = ToFloats<T>(loaded[i]);
#pragma unroll
        for (int j = 0; j < kAcross; ++j) {
          const int at = Reads::WeightAt(i, j);
          if (at < 0) continue;
          AddProducts(values, of_row[at], sums[j]);
        }
      }
    }
    const int64_t line = (image * shape.out_height + row) * shape.out_width;
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
      if (left + j < shape.out_width) {
        Store(out, (line + left + j) * packs + pack, FromFloats<T>(sums[j]));
      }
    }
  }
}

constexpr int kMostLanes = 64;  // CUDA's limit for the third dimension of a block

// Divides the computation of the weight's gradient among threads. Each thread computes the sums for one pack of
// channels and one row of the window, over every (lanes * blocks)-th row of dy.
struct GradientGrid {
  BlockColumns columns;
  int lanes;   // the number of rows that a block processes at a time
  int blocks;  // the number of blocks that share the rows

  static GradientGrid Of(const DepthwiseShape& shape) {
    const BlockColumns columns = ColumnsOf(shape.channels);
    const int lanes = std::min(kMostLanes, kThreads / (columns.units * shape.size));
    const int64_t rows = int64_t{shape.count} * shape.out_height;
    // There are about four blocks for each multiprocessor. These are enough to keep all multiprocessors busy, and more
    // blocks would write more partial sums.
    const int64_t wanted = CeilDivide(int64_t{4} * shape.multiprocessors, columns.count);
    return {columns, lanes,
            static_cast<int>(std::clamp<int64_t>(CeilDivide(rows, lanes), 1, wanted))};
  }
};

// Computes the weight's gradient, and writes each block's sums to partials[block][kSize * kSize][channels].
template <typename T, int kSize, int kStride>
__global__ void __launch_bounds__(kThreads)
    WeightGradient(const void* x, const void* dy, float* partials, DepthwiseShape shape) {
  using Reads = Window<kSize, kStride>;
  const int packs = shape.channels / kPack;
  const int pack = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int k = static_cast<int>(threadIdx.y);
  const int lane = static_cast<int>(threadIdx.z);
  const int lanes = static_cast<int>(blockDim.z);
  Channels sums[kSize] = {};
  const int64_t rows = int64_t{shape.count} * shape.out_height;
  if (pack < packs) {
    for (int64_t line = int64_t{blockIdx.y} * lanes + lane; line < rows;
         line += int64_t{gridDim.y} * lanes) {
      const int row = static_cast<int>(line % shape.out_height);
      const int64_t image = line / shape.out_height;
      const int from = Reads::Row(row, k, shape.padding, shape.height);
      if (from < 0) continue;
      const int64_t x_line = (image * shape.height + from) * shape.width;
      for (int left = 0; left < shape.out_width; left += kAcross) {
        Channels gradients[kAcross];
        uint4 loaded[Reads::kReads];
        uint4 loaded_gradients[kAcross];
        LoadPixels(loaded_gradients, dy, line * shape.out_width, left, shape.out_width, packs,
                   pack);
        LoadPixels(loaded, x, x_line, Reads::First(left, shape.padding), shape.width, packs, pack);
#pragma unroll
        for (int j = 0; j < kAcross; ++j) gradients[j] = ToFloats<T>(loaded_gradients[j]);
#pragma unroll
        for (int i = 0; i < Reads::kReads; ++i) {
          const Channels values = ToFloats<T>(loaded[i]);
#pragma unroll
          for (int j = 0; j < kAcross; ++j) {
            const int at = Reads::WeightAt(i, j);
            if (at < 0) continue;
            AddProducts(values, gradients[j], sums[at]);
          }
        }
      }
    }
  }
  // Adds up the sums of the lanes, one column of the window at a time.
  __shared__ float shared[kThreads * kPack];
  const int width = static_cast<int>(blockDim.x) * kPack;
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    __syncthreads();
    float* own =
        shared +
        ((lane * kSize + k) * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kPack;
#pragma unroll
    for (int c = 0; c < kPack; ++c) own[c] = sums[i].values[c];
    __syncthreads();
    const int thread =
        (lane * kSize + k) * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    const int threads = static_cast<int>(blockDim.x) * kSize * lanes;
    for (int at = thread; at < kSize * width; at += threads) {
      const int channel = static_cast<int>(blockIdx.x) * width + at % width;
      if (channel >= shape.channels) continue;
      float sum = 0;
      for (int other = 0; other < lanes; ++other) sum += shared[other * kSize * width + at];
      const int tap = at / width * kSize + i;
      partials[(int64_t{blockIdx.y} * kSize * kSize + tap) * shape.channels + channel] = sum;
    }
  }
}

// The size of a thread block of SumGradients(), which computes d_weight[channel, tap] from
// partials[blocks][taps][channels]. Each thread block computes one tap of kSumChannels channels, and adds up kSumRows
// partial sums of each channel at a time.
constexpr int kSumChannels = 32;
constexpr int kSumRows = 8;

__global__ void SumGradients(const float* partials, int blocks, int channels, int taps, SumsTo to) {
  const int channel = static_cast<int>(blockIdx.x) * kSumChannels + static_cast<int>(threadIdx.x);
  const int tap = static_cast<int>(blockIdx.y);
  __shared__ float shared[kSumRows][kSumChannels];
  float sum = 0;
  if (channel < channels) {
#pragma unroll 4
    for (int block = static_cast<int>(threadIdx.y); block < blocks; block += kSumRows) {
      sum += partials[(int64_t{block} * taps + tap) * channels + channel];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= channels) return;
  for (int row = 1; row < kSumRows; ++row) sum += shared[row][threadIdx.x];
  float& result = to.sums[channel * taps + tap];
  result = to.adds ? result + sum : sum;
}

template <int kSize>
struct Size {
  static constexpr int kValue = kSize;
};

template <typename Launch>
void WithSize(int size, const Launch& launch) {
  if (size == 3) launch(Size<3>());
  if (size == 5) launch(Size<5>());
  if (size == 7) launch(Size<7>());
}

// The kernels of depthwise_large_window.cuh compute the convolutions with stride 1 whose windows have kLargeSize rows
// and columns. IsLarge() returns whether a convolution is one of these.
constexpr int kLargeSize = 7;
bool IsLarge(const DepthwiseShape& shape) { return shape.size == kLargeSize && shape.stride == 1; }

large_window::Shape LargeShape(const DepthwiseShape& shape) {
  return {shape.count,      shape.channels / 2, shape.height, shape.width,
          shape.out_height, shape.out_width,    shape.padding};
}

// Returns the number of partial sums for the gradient of each weight.
int GradientBlocks(const DepthwiseShape& shape) {
  if (!IsLarge(shape)) return GradientGrid::Of(shape).blocks;
  return large_window::GradientBlocks(shape.count, shape.channels / 2, shape.multiprocessors);
}

using Convolution = void (*)(const void*, const float*, const float*, void*, ImagesShape, Tiles);

void LaunchConvolve(Convolution kernel, const void* in, const float* weight, const float* bias,
                    void* out, const ImagesShape& shape, int multiprocessors, cudaStream_t stream) {
  const BlockColumns columns = ColumnsOf(shape.channels);
  const Tiles tiles = Tiles::Of(shape);
  const dim3 threads(columns.units, kLanes);
  int resident = 1;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel,
                                                static_cast<int>(threads.x * threads.y), 0);
  const int64_t wanted =
      std::max<int64_t>(1, int64_t{multiprocessors} * std::max(resident, 1) / columns.count);
  const dim3 grid(columns.count, static_cast<unsigned>(std::min(tiles.all, wanted)));
  kernel<<<grid, threads, 0, stream>>>(in, weight, bias, out, shape, tiles);
}

}  // namespace

void LaunchDepthwise(const void* x, const float* weight, const float* bias, void* y, FloatType type,
                     const DepthwiseShape& shape, cudaStream_t stream) {
  const ImagesShape images{shape.count,      shape.channels,  shape.height,  shape.width,
                           shape.out_height, shape.out_width, shape.padding, /*turns=*/false};
  With16Bits(type, [&](auto zero) {
    using T = decltype(zero);
    if (IsLarge(shape)) {
      return large_window::LaunchConvolve<T, kLargeSize>(x, weight, bias, y, LargeShape(shape),
                                                         /*turns=*/false, shape.multiprocessors,
                                                         stream);
    }
    WithSize(shape.size, [&](auto size) {
      constexpr int kSize = decltype(size)::kValue;
      Convolution kernel = Convolve<T, Window<kSize, 2>, kSize>;
      if constexpr (kSize < kLargeSize) {
        if (shape.stride == 1) kernel = Convolve<T, Window<kSize, 1>, kSize>;
      }
      LaunchConvolve(kernel, x, weight, bias, y, images, shape.multiprocessors, stream);
    });
  });
}

void LaunchDepthwiseInputGradient(const void* dy, const float* weight, void* dx, FloatType type,
                                  const DepthwiseShape& shape, cudaStream_t stream) {
  ImagesShape images{shape.count,  shape.channels, shape.out_height, shape.out_width,
                     shape.height, shape.width,    shape.padding,    /*turns=*/false};
  With16Bits(type, [&](auto zero) {
    using T = decltype(zero);
    if (IsLarge(shape)) {
      return large_window::LaunchConvolve<T, kLargeSize>(
          dy, weight, /*bias=*/nullptr, dx,
          {shape.count, shape.channels / 2, shape.out_height, shape.out_width, shape.height,
           shape.width, kLargeSize - 1 - shape.padding},
          /*turns=*/true, shape.multiprocessors, stream);
    }
    WithSize(shape.size, [&](auto size) {
      constexpr int kSize = decltype(size)::kValue;
      Convolution kernel = shape.padding % 2 == 1
                               ? Convolve<T, StridedGradient<kSize, true>, kSize>
                               : Convolve<T, StridedGradient<kSize, false>, kSize>;
      if constexpr (kSize < kLargeSize) {
        if (shape.stride == 1) {
          images.padding = kSize - 1 - shape.padding;
          images.turns = true;
          kernel = Convolve<T, Window<kSize, 1>, kSize>;
        }
      }
      LaunchConvolve(kernel, dy, weight, /*bias=*/nullptr, dx, images, shape.multiprocessors,
                     stream);
    });
  });
}

int64_t DepthwisePartials(const DepthwiseShape& shape) {
  return int64_t{GradientBlocks(shape)} * shape.size * shape.size * shape.channels;
}

void LaunchDepthwiseWeightGradient(const void* x, const void* dy, float* partials,
                                   const SumsTo& d_weight, FloatType type,
                                   const DepthwiseShape& shape, cudaStream_t stream) {
  const GradientGrid grid = GradientGrid::Of(shape);
  const dim3 blocks(grid.columns.count, grid.blocks);
  const dim3 threads(grid.columns.units, shape.size, grid.lanes);
  With16Bits(type, [&](auto zero) {
    using T = decltype(zero);
    if (IsLarge(shape)) {
      return large_window::LaunchWeightGradient<T, kLargeSize>(x, dy, partials, LargeShape(shape),
                                                               GradientBlocks(shape), stream);
    }
    WithSize(shape.size, [&](auto size) {
      constexpr int kSize = decltype(size)::kValue;
      auto kernel = WeightGradient<T, kSize, 2>;
      if constexpr (kSize < kLargeSize) {
        if (shape.stride == 1) kernel = WeightGradient<T, kSize, 1>;
      }
      kernel<<<blocks, threads, 0, stream>>>(x, dy, partials, shape);
    });
  });
  const int taps = shape.size * shape.size;
  const dim3 sum_blocks(static_cast<unsigned>(CeilDivide(shape.channels, kSumChannels)), taps);
  const dim3 sum_threads(kSumChannels, kSumRows);
  SumGradients<<<sum_blocks, sum_threads, 0, stream>>>(partials, GradientBlocks(shape),
                                                       shape.channels, taps, d_weight);
}

}  // namespace lockstep::ops
