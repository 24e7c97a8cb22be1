#include <algorithm>

#include "base/ceil_divide.h"
#include "ops/common/block_columns.h"
#include "ops/common/floats.cuh"
#include "ops/common/lane_sums.cuh"
#include "ops/common/pack.cuh"
#include "ops/common/strided_rows.cuh"
#include "ops/norm/squeeze_excite_kernel.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 8;  // the number of channels of a thread, which are 16 bytes
constexpr int kBlocksPerMultiprocessor = 4;
constexpr int kPixels = 4;  // the number of pixels of a thread whose loads are in flight at once
// The maximum number of packs of a block in SumPixels. The limit lets a block process several pixels at a time.
constexpr int kMostSumPacks = 32;
constexpr int kGatedPixels = 8;  // the maximum number of pixels of a thread in GatePixels

using Channels = Floats<kPack>;

// The distribution of blocks over images. A block processes pixels of one image, `lanes` pixels at a time, for a group
// of adjacent packs of channels.
struct Tiles {
  int columns;  // the number of blocks that share a pixel
  int packs;    // the number of packs of a block; the last block may have fewer
  int lanes;    // the number of pixels that a block processes at a time
  int slices;   // the number of blocks that share an image's pixels

  // Returns tiles for SumPixels. There are only as many slices as can run on the multiprocessors at once, so that there
  // are few partial sums.
  static Tiles OfSums(const SqueezeShape& shape) {
    Tiles tiles = InColumns(shape, kMostSumPacks);
    const int64_t blocks = shape.count * tiles.columns;
    const int64_t resident = int64_t{shape.multiprocessors} * kBlocksPerMultiprocessor;
    const int64_t most = CeilDivide(shape.pixels, int64_t{tiles.lanes} * kPixels);
    tiles.slices = static_cast<int>(std::clamp<int64_t>(resident / blocks, 1, most));
    return tiles;
  }

  // Returns tiles for GatePixels, with so many slices that each thread has at most kGatedPixels pixels.
  static Tiles OfGated(const SqueezeShape& shape) {
    Tiles tiles = InColumns(shape, kThreads);
    tiles.slices = static_cast<int>(CeilDivide(shape.pixels, int64_t{tiles.lanes} * kGatedPixels));
    return tiles;
  }

  dim3 Block() const { return dim3(packs, lanes); }

 private:
  static Tiles InColumns(const SqueezeShape& shape, int most_packs) {
    const auto [columns, packs] = BlockColumns::Of(shape.channels / kPack, most_packs);
    // If several blocks share a pixel, the number of packs of a block is even, so that blocks meet at multiples of 32
    // bytes, the size of a sector of memory.
    const int block_packs = columns == 1 ? packs : RoundUp(packs, 2);
    const int64_t lanes = std::min<int64_t>(kThreads / block_packs, shape.pixels);
    return {columns, block_packs, static_cast<int>(lanes), 1};
  }
};

// The pack of channels of an image that a thread processes.
struct Place {
  int64_t packs;  // the number of packs of all channels
  int64_t image;
  int64_t pack;  // the index of the pack; `packs` or more if the thread has none

  __device__ Place(const SqueezeShape& shape, int64_t image, int column)
      : packs(shape.channels / kPack),
        image(image),
        pack(int64_t{column} * blockDim.x + threadIdx.x) {}

  __device__ bool IsInside() const { return pack < packs; }
  __device__ int64_t OfPixel(const SqueezeShape& shape, int64_t pixel) const {
    return (image * shape.pixels + pixel) * packs + pack;
  }
  __device__ int64_t OfImage() const { return image * packs + pack; }
};

// Returns the values of `tensor`, which has one value for each channel of an image, for the thread's pack. If `tensor`
// is null, all values are `other`.
template <typename T>
__device__ Channels LoadChannels(const void* tensor, const Place& place, float other) {
  if (tensor != nullptr) return ToFloats<T>(Load(tensor, place.OfImage()));
  Channels channels;
#pragma unroll
  for (int j = 0; j < kPack; ++j) channels.values[j] = other;
  return channels;
}

// Writes a channel's sum over the image's pixels to t.sums, or, if there are several slices, the sum over the slice's
// pixels to t.partials. `place` is the index of the channel among the channels of all images.
template <typename T>
__device__ void GiveSum(const PixelSums& t, const SqueezeShape& shape, int64_t place, float sum) {
  if (t.partials == nullptr) {
    static_cast<T*>(t.sums)[place] = FromFloat<T>(t.factor * sum);
  } else {
    t.partials[blockIdx.y * shape.count * shape.channels + place] = sum;
  }
}

// Computes the sums over pixels. blockIdx.x is image * columns + column of blocks, and blockIdx.y is the slice.
template <typename T, bool kIsProduct>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    SumPixels(PixelSums t, SqueezeShape shape, int columns) {
  const int column = static_cast<int>(blockIdx.x) % columns;
  const Place at(shape, static_cast<int>(blockIdx.x) / columns, column);
  Channels sums = {};
  if (at.IsInside()) {
    uint4 x[kPixels];
    uint4 by[kPixels];
    ForEachRow<kPixels>(
        StridedRows{.first = int64_t{blockIdx.y} * blockDim.y + threadIdx.y,
                    .stride = int64_t{gridDim.y} * blockDim.y,
                    .end = shape.pixels},
        [&](int64_t pixel, int u) {
          x[u] = Load(t.x, at.OfPixel(shape, pixel));
          if constexpr (kIsProduct) by[u] = Load(t.by, at.OfPixel(shape, pixel));
        },
        [&](int64_t, int u) {
          const Channels values = ToFloats<T>(x[u]);
          if constexpr (kIsProduct) {
            const Channels factors = ToFloats<T>(by[u]);
#pragma unroll
            for (int j = 0; j < kPack; ++j) {
              sums.values[j] = fmaf(values.values[j], factors.values[j], sums.values[j]);
            }
          } else {
#pragma unroll
            for (int j = 0; j < kPack; ++j) sums.values[j] += values.values[j];
          }
        });
  }
  SumLanes<kThreads>(sums.values, column, shape.channels, [&](int64_t channel, float sum) {
    GiveSum<T>(t, shape, at.image * shape.channels + channel, sum);
  });
}

// Adds up the partial sums of the `slices` slices. Each thread computes one sum.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    SumSlices(const float* partials, void* sums, float factor, int64_t size, int slices) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  float sum = 0;
#pragma unroll 4
  for (int slice = 0; slice < slices; ++slice) sum += partials[slice * size + i];
  static_cast<T*>(sums)[i] = FromFloat<T>(factor * sum);
}

// Computes y of GatedPixels. blockIdx.x is image * slices + slice, and blockIdx.y is the column of blocks.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    GatePixels(GatedPixels t, SqueezeShape shape, int slices) {
  const Place at(shape, static_cast<int>(blockIdx.x) / slices, static_cast<int>(blockIdx.y));
  if (!at.IsInside()) return;
  const int64_t slice = static_cast<int>(blockIdx.x) % slices;
  const int64_t slice_pixels = int64_t{blockDim.y} * kGatedPixels;
  const Channels gate = LoadChannels<T>(t.gate, at, 1);
  Channels shift = LoadChannels<T>(t.shift, at, 0);
#pragma unroll
  for (int j = 0; j < kPack; ++j) shift.values[j] *= t.factor;
  uint4 x[kPixels];
  ForEachRow<kPixels>(
      StridedRows{.first = slice * slice_pixels + threadIdx.y,
                  .stride = blockDim.y,
                  .end = min((slice + 1) * slice_pixels, shape.pixels)},
      [&](int64_t pixel, int u) {
        x[u] = t.x != nullptr ? Load(t.x, at.OfPixel(shape, pixel)) : uint4{};
      },
      [&](int64_t pixel, int u) {
        Channels y = ToFloats<T>(x[u]);
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          y.values[j] = fmaf(y.values[j], gate.values[j], shift.values[j]);
        }
        Store(t.y, at.OfPixel(shape, pixel), FromFloats<T>(y));
      });
}

}  // namespace

int64_t PixelSumSlices(const SqueezeShape& shape) { return Tiles::OfSums(shape).slices; }

void LaunchPixelSums(const PixelSums& tensors, FloatType type, const SqueezeShape& shape,
                     cudaStream_t stream) {
  const Tiles tiles = Tiles::OfSums(shape);
  const dim3 grid(static_cast<unsigned>(shape.count * tiles.columns), tiles.slices);
  With16Bits(type, [&](auto value) {
    using T = decltype(value);
    const auto sum_pixels = tensors.by == nullptr ? SumPixels<T, false> : SumPixels<T, true>;
    sum_pixels<<<grid, tiles.Block(), 0, stream>>>(tensors, shape, tiles.columns);
    if (tensors.partials == nullptr) return;
    const int64_t size = shape.count * shape.channels;
    SumSlices<T><<<static_cast<unsigned>(CeilDivide(size, kThreads)), kThreads, 0, stream>>>(
        tensors.partials, tensors.sums, tensors.factor, size, tiles.slices);
  });
}

void LaunchGatedPixels(const GatedPixels& tensors, FloatType type, const SqueezeShape& shape,
                       cudaStream_t stream) {
  const Tiles tiles = Tiles::OfGated(shape);
  const dim3 grid(static_cast<unsigned>(shape.count * tiles.slices), tiles.columns);
  With16Bits(type, [&](auto value) {
    GatePixels<decltype(value)><<<grid, tiles.Block(), 0, stream>>>(tensors, shape, tiles.slices);
  });
}

}  // namespace lockstep::ops
