// The kernels of feed_forward_kernel.h for one type. Each type is compiled by itself, because CUTLASS's templates take
// long to compile.
#pragma once

#include "ops/product/feed_forward_kernel.h"

namespace lockstep::ops {

// The size of a tile of the result. One group of warps multiplies for its tile while another group finishes the tile
// before.
constexpr int kTileRows = 128;
constexpr int kTileHidden = 192;
constexpr int kTileHiddenBackward = 128;  // the tile of `inner` takes shared memory, too

template <FloatType kType>
struct HiddenProducts {
  static const char* Forward(const HiddenForward& tensors, const HiddenShape& shape,
                             cudaStream_t stream);
  // Does not add up the partials, [tiles of rows, tiles of hidden, kTileHiddenBackward]; the caller does.
  static const char* Backward(const HiddenBackward& tensors, const HiddenShape& shape,
                              cudaStream_t stream);
};

}  // namespace lockstep::ops
