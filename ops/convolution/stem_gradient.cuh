// Computes the gradient of the stem's weight as a product of two matrices: dy transposed, [outputs, pixels], and the
// squares under the windows, [pixels, taps * channels], where a tap is one of the window's 4x4 squares. The inner
// dimension (pixels) is far greater than the others, so each block computes the whole product for some of the pixels. A
// block goes through the rows of dy in a strip of the image, from top to bottom. The block multiplies rows that are in
// shared memory while it copies the next rows to shared memory. In shared memory the squares of two taps lie at a
// constant distance from each other, so the squares need not be copied once for each tap.
//
// A warp computes all 64 outputs for one row of the window's taps, which are 64 columns. The warp's product is
// therefore as high as it is wide. This shape needs the fewest loads from shared memory, which would otherwise limit
// the speed.
#pragma once

#include <cstdint>

#include "base/ceil_divide.h"
#include "ops/convolution/stem_convolution_kernel.h"
#include "ops/convolution/stem_tiles.cuh"

namespace lockstep::ops::stem {

constexpr int kColumns = kWindow * kWindow * kChannels;
constexpr int kWarps = kWindow;
constexpr int kGradientThreads = 32 * kWarps;
constexpr int kBlocksPerMultiprocessor = 2;  // one block multiplies while the other block waits

constexpr int kStages = 3;  // the number of rows of dy that are being multiplied or copied

// kRing is the number of rows of squares that are being multiplied or copied. The row of dy that is being multiplied
// needs the kWindow rows of squares under its windows. The other kStages - 1 = 2 rows of dy are being copied. At most
// one of these two is the first row of a strip, because a strip has at least two rows. For the first row of a strip,
// all kWindow rows of squares under the row's windows must be copied. For any other row of dy, only one more row of
// squares must be copied.
constexpr int kLeastHeight = kStages - 1;
constexpr int kRing = kWindow + kWindow + (kStages - 2);

constexpr int kDyBytes = 2 * kOutputs;  // the number of bytes of a pixel of dy
constexpr int kDyRowBytes = kTiles * kTile * kDyBytes;
constexpr int kSharedBytes = kStages * kDyRowBytes + kRing * kSquareRowBytes;

// Returns the offset, in bytes, of a pixel's pack in a row of dy. A pixel has 8 packs. The order of the packs changes
// from pixel to pixel, which avoids bank conflicts.
__device__ constexpr int DyPlace(int pixel, int pack) {
  return pixel * kDyBytes + (pack ^ (pixel % 8)) * kPackBytes;
}

// The row of dy that a block copies or multiplies, and the places of this row's data in shared memory.
struct Walk {
  int64_t image;
  int strip;
  int row;
  int stage;  // the index of the stage that holds the row of dy
  int slot;   // the index in the ring of the first row of squares under the row's windows

  __device__ Walk(int64_t index, int height, int strips)
      : image(index / height / strips),
        strip(static_cast<int>(index / height % strips)),
        row(static_cast<int>(index % height)),
        stage(0),
        slot(0) {}

  __device__ void Advance(int height, int strips) {
    stage = stage + 1 == kStages ? 0 : stage + 1;
    if (++row < height) {
      // The windows of the next row begin one row of squares further down.
      ++slot;
    } else {
      slot += kWindow;
      row = 0;
      if (++strip == strips) {
        strip = 0;
        ++image;
      }
    }
    if (slot >= kRing) slot -= kRing;
  }
};

// A thread's values of a tile of pixels: dy for each group of 16 outputs, and squares for each tap of one row of the
// window.
struct Fragments {
  uint32_t dy[kOutputs / 16][4];
  uint32_t squares[kWindow][4];
};

template <typename T>
__device__ void SumProducts(const char* dy, const char* squares, float* partials,
                            const StemShape& shape, const Strips& strips) {
  extern __shared__ uint4 shared[];
  const auto stages = SharedAddress(shared);
  const uint32_t ring = stages + kStages * kDyRowBytes;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;

  const int64_t rows = shape.count * strips.count * shape.height;
  const int64_t begin = rows * blockIdx.x / gridDim.x;
  const int count = static_cast<int>(rows * (blockIdx.x + 1) / gridDim.x - begin);

  // A thread copies the pack with the same index of several pixels. The distances between these pixels are multiples of
  // 8, so the pack has the same place in each of these pixels.
  constexpr int kDyPacks = kDyBytes / kPackBytes;
  static_assert(kGradientThreads / kDyPacks == kTile && kTile % 8 == 0);
  const int dy_pixel = thread / kDyPacks;
  const uint32_t dy_place = stages + DyPlace(dy_pixel, thread % kDyPacks);
  constexpr int kSquarePacks = kSquareBytes / kPackBytes;
  // The number of squares that all threads together copy at once.
  constexpr int kSquares = kGradientThreads / kSquarePacks;
  constexpr int kCopies = CeilDivide(kSquaresOfStrip, kSquares);
  static_assert(kSquares % 8 == 0);
  const int square = thread / kSquarePacks;
  const uint32_t square_place = ring + SquarePlace(square, thread % kSquarePacks);

  Walk loading(begin, shape.height, strips.count);
  int loaded = 0;
  const auto load = [&] {
    if (loaded < count) {
      const int column = loading.strip * strips.tiles * kTile;
      const char* from =
          dy + ((loading.image * shape.height + loading.row) * shape.width + column) * kDyBytes +
          thread * kPackBytes;
      const uint32_t to = dy_place + loading.stage * kDyRowBytes;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile >= strips.tiles) break;
        CopyPack(to + tile * kTile * kDyBytes, from + tile * kTile * kDyBytes,
                 column + tile * kTile + dy_pixel < shape.width);
      }
      const int framed_width = shape.width + kWindow - 1;
      // Copies the last row of squares under the windows. For the block's first row of dy and for the first row of a
      // strip, copies the rows above the last row, too.
#pragma unroll 1
      for (int r = loaded == 0 || loading.row == 0 ? 0 : kWindow - 1; r < kWindow; ++r) {
        const int64_t row = loading.image * (shape.height + kWindow - 1) + loading.row + r;
        const char* squares_from =
            squares + (row * framed_width + column) * kSquareBytes + thread * kPackBytes;
        const uint32_t squares_to = square_place + (loading.slot + r) % kRing * kSquareRowBytes;
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          if (i * kSquares + square >= kSquaresOfStrip) break;
          CopyPack(squares_to + i * kSquares * kSquareBytes,
                   squares_from + i * kSquares * kSquareBytes,
                   column + i * kSquares + square < framed_width);
        }
      }
      loading.Advance(shape.height, strips.count);
      ++loaded;
    }
    // Ends the group of copies even if it is empty, because AwaitCopyGroups() counts groups.
    EndCopyGroup();
  };

  // The addresses of the matrix rows that this thread passes to LoadTransposed(): packs of a pixel's outputs (of dy) or
  // of a square's channels. LoadTransposed() loads four matrices. For dy the second matrix has the next 8 outputs; for
  // squares the second matrix has the next 8 pixels.
  uint32_t dy_rows[kOutputs / 16];
  uint32_t square_rows[kWindow];
#pragma unroll
  for (int m = 0; m < kOutputs / 16; ++m) {
    dy_rows[m] = stages + DyPlace(lane / 16 * 8 + lane % 8, 2 * m + lane / 8 % 2);
  }
#pragma unroll
  for (int tap = 0; tap < kWindow; ++tap) {
    square_rows[tap] = ring + SquarePlace(lane % 16 + tap, lane / 16);
  }

  float sums[kOutputs / 16][kWindow][2][4] = {};
  const auto multiply = [&](const Fragments& of) {
#pragma unroll
    for (int tap = 0; tap < kWindow; ++tap) {
#pragma unroll
      for (int m = 0; m < kOutputs / 16; ++m) {
        MultiplyAdd<T>(sums[m][tap][0], of.dy[m], of.squares[tap][0], of.squares[tap][1]);
        MultiplyAdd<T>(sums[m][tap][1], of.dy[m], of.squares[tap][2], of.squares[tap][3]);
      }
    }
  };

#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) load();
  Walk at(begin, shape.height, strips.count);
  for (int i = 0; i < count; ++i) {
    AwaitCopyGroups<kStages - 2>();
    // After this barrier the copies of all threads for this row have arrived, and no thread reads the previous row.
    __syncthreads();
    load();
    const uint32_t dy_row = at.stage * kDyRowBytes;
    const uint32_t square_row = (at.slot + warp) % kRing * kSquareRowBytes;
    const auto fragments = [&](int tile) {
      Fragments of;
#pragma unroll
      for (int m = 0; m < kOutputs / 16; ++m) {
        LoadTransposed(of.dy[m], dy_rows[m] + dy_row + tile * kTile * kDyBytes);
      }
#pragma unroll
      for (int tap = 0; tap < kWindow; ++tap) {
        LoadTransposed(of.squares[tap],
                       square_rows[tap] + square_row + tile * kTile * kSquareBytes);
      }
      return of;
    };
    // The next tile is loaded while the tile before it is multiplied.
    Fragments now = fragments(0);
#pragma unroll
    for (int tile = 1; tile < kTiles; ++tile) {
      if (tile >= strips.tiles) break;
      const Fragments next = fragments(tile);
      multiply(now);
      now = next;
    }
    multiply(now);
    at.Advance(shape.height, strips.count);
  }

  // A thread holds two adjacent values in each of two rows that are 8 apart.
  float* to = partials + (int64_t{blockIdx.x} * kOutputs + lane / 4) * kColumns +
              warp * kWindow * kChannels + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < kOutputs / 16; ++m) {
#pragma unroll
    for (int tap = 0; tap < kWindow; ++tap) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float(&four)[4] = sums[m][tap][half];
        float* here = to + m * 16 * kColumns + tap * kChannels + half * 8;
        *reinterpret_cast<float2*>(here) = {four[0], four[1]};
        *reinterpret_cast<float2*>(here + 8 * kColumns) = {four[2], four[3]};
      }
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kGradientThreads, kBlocksPerMultiprocessor)
    StemGradient(const char* dy, const char* squares, float* partials, StemShape shape,
                 Strips strips) {
  if (kHasMatrixUnit) SumProducts<T>(dy, squares, partials, shape, strips);
}

}  // namespace lockstep::ops::stem
