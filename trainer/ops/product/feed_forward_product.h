// The kernels of feed_forward_kernel.h for one type. Each type is compiled by itself, because CUTLASS's templates take
// long to compile.
#pragma once

#include "trainer/ops/product/feed_forward_kernel.h"

namespace lockstep::ops {

// Of a result's tile, whose multiplications a warp group does while another finishes the tile before.
constexpr int kTileRows = 128;
constexpr int kTileHidden = 192;
constexpr int kTileHiddenBackward = 128;  // with what is read of `inner`, no more fit

template <FloatType kType>
struct HiddenProducts {
  static const char* Forward(const HiddenForward& tensors, const HiddenShape& shape,
                             cudaStream_t stream);
  // Without the sums of the partials: [tiles of rows, tiles of hidden, kTileHiddenBackward].
  static const char* Backward(const HiddenBackward& tensors, const HiddenShape& shape,
                              cudaStream_t stream);
};

}  // namespace lockstep::ops
