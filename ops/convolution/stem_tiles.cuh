// The code that stem_forward.cuh and stem_gradient.cuh share: how an image is cut into strips, where a strip's squares
// of 2x2 pixels (stem_convolution.h) lie in shared memory, and the instructions that copy data to shared memory
// asynchronously.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "base/ceil_divide.h"
#include "ops/common/matrix_unit.cuh"
#include "ops/common/shared_address.cuh"

namespace lockstep::ops::stem {

constexpr int kWindow = 4;  // the window has 4x4 squares
constexpr int kOutputs = 64;
constexpr int kChannels = 16;  // the number of channels of a square

constexpr int kTile = 16;  // the number of pixels that one instruction multiplies
// The maximum number of tiles of a strip. The output for an image of 224 by 224 pixels is one strip of this width.
constexpr int kTiles = 7;

// A warp loads matrices from shared memory in groups of 8 packs of 16 bytes, which belong to consecutive pixels. The
// packs are in different memory banks if their indices in shared memory, counted in packs, are different modulo 8.
constexpr int kPackBytes = 16;
constexpr int kSquareBytes = 2 * kChannels;
constexpr int kSquaresOfStrip = kTiles * kTile + kWindow - 1;
constexpr int kSquareRowBytes = kSquaresOfStrip * kSquareBytes;

// Returns the offset, in bytes, of a square's pack in a row of squares. Four squares of 2 packs fill all memory banks.
// The 2 packs of a square are exchanged in every second group of 4 squares, so that the packs with the same index in 8
// consecutive squares lie in different banks.
__device__ constexpr int SquarePlace(int square, int pack) {
  return square * kSquareBytes + (pack ^ (square / 4 % 2)) * kPackBytes;
}

// The division of an image into strips, side by side, that fit into a block's shared memory.
struct Strips {
  int count;  // the number of strips of an image
  int tiles;  // the number of tiles of each strip; squares outside of the image are zeros
};

inline Strips StripsOf(int width) {
  const int tiles = CeilDivide(width, kTile);
  const int count = CeilDivide(tiles, kTiles);
  return {count, CeilDivide(tiles, count)};
}

// Starts a copy of a pack to shared memory. If `is_there` is false, writes zeros instead of the pack.
__device__ inline void CopyPack(uint32_t to, const char* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(is_there ? kPackBytes : 0)
               : "memory");
}

// Makes a group of the copies that this thread started since the last call.
__device__ inline void EndCopyGroup() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all groups of this thread except the last kLater groups.
template <int kLater>
__device__ void AwaitCopyGroups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

}  // namespace lockstep::ops::stem
