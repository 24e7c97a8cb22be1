// The operations with which Swin transformers divide images into windows, and join the windows to images again
// (fuse.h).
//
//   (roll) -> view [.., .., .., .., .., ..] -> permute -> (contiguous) -> view      ToWindows()
//   view [.., .., .., .., .., ..] -> permute -> (contiguous) -> view -> (roll)      FromWindows()
//
// Without a roll the two chains are the same, and become ToWindows(). The sizes are known only when the graph runs; if
// they are not those of windows, LibTorch's operations are called.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the chain around the permute operation `node`.
void FuseWindows(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
