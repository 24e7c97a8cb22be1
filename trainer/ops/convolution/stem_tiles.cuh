// What the two products of a stem have in common: strips of an image whose rows lie in shared memory, copied there
// while others are multiplied, and the instructions by which a warp multiplies what it loads from there.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "base/ceil_divide.h"

namespace lockstep::ops::stem {

constexpr int kWindow = 4;  // squares of a side of the window
constexpr int kOutputs = 64;
constexpr int kChannels = 16;  // of a square

constexpr int kTile = 16;  // pixels that an instruction sums over
constexpr int kTiles = 7;  // of the widest strip: an image of 224 by 224 pixels has one

// Matrices are loaded from shared memory by 8 packs of 16 bytes, of pixels that follow each other.
// They come from different banks if the packs' numbers in memory differ modulo 8.
constexpr int kPackBytes = 16;
constexpr int kSquareBytes = 2 * kChannels;
constexpr int kSquaresOfStrip = kTiles * kTile + kWindow - 1;
constexpr int kSquareRowBytes = kSquaresOfStrip * kSquareBytes;

// Where in a row of squares a square's pack is: of 2, which change places every 4 squares, whose
// packs are 8.
__device__ constexpr int SquarePlace(int square, int pack) {
  return square * kSquareBytes + (pack ^ (square / 4 % 2)) * kPackBytes;
}

// How images are cut into strips that a block's shared memory has room for.
struct Strips {
  int count;  // of an image, side by side
  int tiles;  // of each; past the image's end there are zeros
};

inline Strips StripsOf(int width) {
  const int tiles = CeilDivide(width, kTile);
  const int count = CeilDivide(tiles, kTiles);
  return {count, CeilDivide(tiles, count)};
}

// Starts a copy of a pack to shared memory; of zeros unless it is there.
__device__ inline void CopyPack(uint32_t to, const char* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(is_there ? kPackBytes : 0)
               : "memory");
}

// The copies started since the last such call are a group.
__device__ inline void EndCopyGroup() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for this thread's groups but for the last so many.
template <int kLater>
__device__ void AwaitCopyGroups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

// Loads four matrices of 8 by 8 values. Each 8 threads give the places of a matrix's rows.
__device__ inline void LoadMatrices(uint32_t (&values)[4], uint32_t place) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(place)
               : "memory");
}

// Likewise, transposed.
__device__ inline void LoadTransposed(uint32_t (&values)[4], uint32_t place) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(place)
               : "memory");
}

// sums += a b, of [16, 16] and [16, 8] values that the warp's threads have between them.
template <typename T>
__device__ void MultiplyAdd(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Turing has neither these copies nor bfloat16's instructions, and HasStemForward and StemGradientParts say so. In a
// kernel an `if` that is no constexpr leaves all of this in use there too.
constexpr int kLeastMajor = 8;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool kHasInstructions = false;
#else
constexpr bool kHasInstructions = true;
#endif

}  // namespace lockstep::ops::stem
