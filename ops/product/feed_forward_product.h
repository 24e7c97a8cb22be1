// Declares the matrix products of feed_forward_kernel.h for one type. Each type is compiled in a file of its own,
// because CUTLASS's templates take long to compile.
#pragma once

#include "ops/product/feed_forward_kernel.h"

namespace lockstep::ops {

// The size of a tile of the result of Forward(). While one group of warps computes the product for a tile, another
// group computes the epilogue (bias and activation) of the previous tile.
constexpr int kTileRows = 128;
constexpr int kTileHidden = 192;
// The number of columns of a tile of Backward(). This number is smaller than kTileHidden, because Backward() also holds
// a tile of `inner` in shared memory, which leaves less room for the tiles of the product.
constexpr int kTileHiddenBackward = 128;

template <FloatType kType>
struct HiddenProducts {
  static const char* Forward(const HiddenForward& tensors, const HiddenShape& shape,
                             cudaStream_t stream);
  // Computes the results of HiddenBackward, except d_bias: writes partial sums of d_bias to `partials`, [tiles of rows,
  // tiles of hidden, kTileHiddenBackward], which the caller must add up.
  static const char* Backward(const HiddenBackward& tensors, const HiddenShape& shape,
                              cudaStream_t stream);
};

}  // namespace lockstep::ops
