// RMSNorm, with the sum before it (fuse.h):
//
//   [add ->] [to float32 ->] pow 2 -> mean -> add epsilon -> rsqrt -> mul -> [to float32 ->] mul by the weight
//   [add ->] rms_norm of the last dimension
//
// Llama, and most models after it, write the norm in the first form. Both forms become RowsNorm() (rows_norm.h), which
// also returns the sum.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the norm around `node`, which is an rms_norm, or the rsqrt of the first form.
void FuseRmsNorm(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
