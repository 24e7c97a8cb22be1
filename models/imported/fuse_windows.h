// Windows of images (fuse.h), into which Swin transformers cut them, and of which they put them together again.
//
//   (roll) -> view [.., .., .., .., .., ..] -> permute -> (contiguous) -> view      ToWindows()
//   view [.., .., .., .., .., ..] -> permute -> (contiguous) -> view -> (roll)      FromWindows()
//
// Without a roll both are the same. The sizes are known when the graph runs; where they are not those of windows,
// LibTorch's operations run.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the permute that is this node.
void FuseWindows(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
