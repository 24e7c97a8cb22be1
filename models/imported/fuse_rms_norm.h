// RMS norms of rows, with the sum before them (fuse.h):
//
//   [add ->] [to float32 ->] pow 2 -> mean -> add epsilon -> rsqrt -> mul -> [to float32 ->] mul by the weight
//   [add ->] rms_norm of the last dimension
//
// The first is how Llama and most models after it write the norm in PyTorch. Both become RowsNorm() (rows_norm.h),
// which also gives the sum.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the norm that this node is, or whose rsqrt it is.
void FuseRmsNorm(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
