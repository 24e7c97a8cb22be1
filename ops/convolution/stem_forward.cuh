// Computes the forward of the stem convolution as a product of two matrices: [pixels, taps * channels] by [taps *
// channels, outputs], where a tap is one of the window's 4x4 squares. Each pixel of the output is a row of the product.
// A block moves down the strips of the image, kForwardRows rows at a time. The block multiplies the squares of these
// rows, which are in shared memory, while it copies the squares of the next rows to shared memory.
//
// A warp computes half of the outputs, and keeps the weights of these outputs in registers. The warp computes two rows
// at a time, so the warp loads a square only once for both rows. This kernel is faster than cuDNN's convolutions, which
// process 64 channels at a time, while a square has only 16 channels.
#pragma once

#include <cstdint>

#include "base/ceil_divide.h"
#include "ops/common/pack.cuh"
#include "ops/convolution/stem_convolution_kernel.h"
#include "ops/convolution/stem_tiles.cuh"

namespace lockstep::ops::stem {

constexpr int kForwardWarps = 8;
constexpr int kForwardThreads = 32 * kForwardWarps;
constexpr int kOwnOutputs = kOutputs / 2;  // the number of outputs that a warp computes
// The number of rows that a block computes at a time. Two warps share two rows, and each of the two warps computes half
// of the outputs.
constexpr int kForwardRows = kForwardWarps;
constexpr int kRowsUnderWindows = kForwardRows + kWindow - 1;
constexpr int kForwardBytes = kRowsUnderWindows * kSquareRowBytes;
constexpr int kForwardSharedBytes = 2 * kForwardBytes;

__host__ __device__ inline int BlocksOfStrip(const StemShape& shape) {
  return CeilDivide(shape.height, kForwardRows);
}

// A group of kForwardRows rows of a strip, which a block processes at a time. The last rows of the group may lie below
// the image.
struct RowsOfStrip {
  int64_t image;
  int column;  // the first column
  int row;     // the first row

  __device__ RowsOfStrip(int64_t index, const StemShape& shape, const Strips& strips) {
    const int of_strip = BlocksOfStrip(shape);
    const int64_t strip = index / of_strip;
    image = strip / strips.count;
    column = static_cast<int>(strip % strips.count) * strips.tiles * kTile;
    row = static_cast<int>(index % of_strip) * kForwardRows;
  }
};

__host__ __device__ inline int64_t AllRowsOfStrips(const StemShape& shape, const Strips& strips) {
  return shape.count * strips.count * BlocksOfStrip(shape);
}

template <typename T>
__device__ void Convolve(const char* squares, const uint32_t* weight, uint4* y,
                         const StemShape& shape, const Strips& strips) {
  extern __shared__ uint4 shared[];
  const auto buffers = SharedAddress(shared);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int half = thread / 32 % 2;
  const int pair = thread / 32 / 2;  // the index of the warp's pair of rows

  // Each column of a product is an output. The columns are ordered such that each thread gets eight outputs that lie
  // side by side in memory.
  constexpr int kProducts = kOwnOutputs / 8;
  uint32_t weights[kWindow][kWindow][kProducts][2];
#pragma unroll
  for (int r = 0; r < kWindow; ++r) {
#pragma unroll
    for (int s = 0; s < kWindow; ++s) {
#pragma unroll
      for (int p = 0; p < kProducts; ++p) {
        const int output = half * kOwnOutputs + lane / 8 * 8 + 2 * p + lane / 4 % 2;
        const uint32_t* from =
            weight + ((output * kWindow + r) * kWindow + s) * kChannels / 2 + lane % 4;
        weights[r][s][p][0] = from[0];
        weights[r][s][p][1] = from[4];
      }
    }
  }

  // A thread copies the pack with the same index in each row.
  constexpr int kSquarePacks = kSquareBytes / kPackBytes;
  static_assert(kForwardThreads / kSquarePacks >= kSquaresOfStrip);
  const int square = thread / kSquarePacks;
  const uint32_t square_place = buffers + SquarePlace(square, thread % kSquarePacks);
  const auto load = [&](int64_t index, int buffer) {
    const RowsOfStrip rows(index, shape, strips);
    const int framed_width = shape.width + kWindow - 1;
    const int framed_height = shape.height + kWindow - 1;
    const char* from =
        squares +
        ((rows.image * framed_height + rows.row) * framed_width + rows.column) * kSquareBytes +
        thread * kPackBytes;
    const uint32_t to = square_place + buffer * kForwardBytes;
    if (square < kSquaresOfStrip) {
      const bool is_in_row = rows.column + square < framed_width;
#pragma unroll
      for (int r = 0; r < kRowsUnderWindows; ++r) {
        CopyPack(to + r * kSquareRowBytes, from + int64_t{r} * framed_width * kSquareBytes,
                 is_in_row && rows.row + r < framed_height);
      }
    }
    EndCopyGroup();
  };

  // The address of the matrix row that this thread passes to LoadMatrices(): a pack of a square. LoadMatrices() loads
  // four matrices. The first matrix has the first pack of eight squares, the second matrix has the first pack of the
  // next eight squares, and the third and the fourth matrix have the second pack of the same 16 squares.
  uint32_t square_rows[kWindow];
#pragma unroll
  for (int tap = 0; tap < kWindow; ++tap) {
    square_rows[tap] =
        buffers + 2 * pair * kSquareRowBytes + SquarePlace(lane % 16 + tap, lane / 16);
  }

  const int64_t all = AllRowsOfStrips(shape, strips);
  const int64_t begin = all * blockIdx.x / gridDim.x;
  const int64_t end = all * (blockIdx.x + 1) / gridDim.x;
  if (begin < end) load(begin, 0);
  int buffer = 0;
  for (int64_t index = begin; index < end; ++index) {
    AwaitCopyGroups<0>();
    // After this barrier the copies of all threads for these rows have arrived, and no thread reads the other buffer.
    __syncthreads();
    if (index + 1 < end) load(index + 1, 1 - buffer);
    const RowsOfStrip rows(index, shape, strips);
    const int first_row = rows.row + 2 * pair;
    const int tiles = first_row < shape.height ? strips.tiles : 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      float sums[2][kProducts][4] = {};
#pragma unroll
      for (int r = 0; r <= kWindow; ++r) {
#pragma unroll
        for (int s = 0; s < kWindow; ++s) {
          uint32_t pixels[4];
          LoadMatrices(pixels, square_rows[s] + buffer * kForwardBytes + r * kSquareRowBytes +
                                   tile * kTile * kSquareBytes);
#pragma unroll
          for (int p = 0; p < kProducts; ++p) {
            if (r < kWindow) {
              MultiplyAdd<T>(sums[0][p], pixels, weights[r][s][p][0], weights[r][s][p][1]);
            }
            if (r > 0) {
              MultiplyAdd<T>(sums[1][p], pixels, weights[r - 1][s][p][0], weights[r - 1][s][p][1]);
            }
          }
        }
      }
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        const int row = first_row + which;
#pragma unroll
        for (int below = 0; below < 2; ++below) {
          const int column = rows.column + tile * kTile + 8 * below + lane / 4;
          if (row >= shape.height || column >= shape.width) continue;
          Pack<T> outputs;
#pragma unroll
          for (int p = 0; p < kProducts; ++p) {
            outputs.values[2 * p] = FromFloat<T>(sums[which][p][2 * below]);
            outputs.values[2 * p + 1] = FromFloat<T>(sums[which][p][2 * below + 1]);
          }
          const int64_t pixel = (rows.image * shape.height + row) * shape.width + column;
          Store(y, pixel * (kOutputs / 8) + half * (kOwnOutputs / 8) + lane % 4, outputs);
        }
      }
    }
    buffer = 1 - buffer;
  }
}

template <typename T>
__global__ void __launch_bounds__(kForwardThreads, 1)
    StemForward(const char* squares, const uint32_t* weight, uint4* y, StemShape shape,
                Strips strips) {
  if (kHasMatrixUnit) Convolve<T>(squares, weight, y, shape, strips);
}

}  // namespace lockstep::ops::stem
