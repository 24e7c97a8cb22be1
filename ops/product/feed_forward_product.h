// Declares the kernels of feed_forward_kernel.h for one type. Each type is compiled by itself, because CUTLASS's
// templates take long to compile.
#pragma once

#include "ops/product/feed_forward_kernel.h"

namespace lockstep::ops {

// The size of a tile of the result. While one group of warps computes the product for its tile, another group computes
// the epilogue of the previous tile.
constexpr int kTileRows = 128;
constexpr int kTileHidden = 192;
// Smaller than kTileHidden, because the tile of `inner` also takes shared memory.
constexpr int kTileHiddenBackward = 128;

template <FloatType kType>
struct HiddenProducts {
  static const char* Forward(const HiddenForward& tensors, const HiddenShape& shape,
                             cudaStream_t stream);
  // Writes partial sums of the bias's gradient to `partials`, [tiles of rows, tiles of hidden, kTileHiddenBackward].
  // The caller must add them up.
  static const char* Backward(const HiddenBackward& tensors, const HiddenShape& shape,
                              cudaStream_t stream);
};

}  // namespace lockstep::ops
