// Norms of rows, with the sum before them (fuse.h):
//
//   layer_norm of the last dimension                          RowsNorm() (rows_norm.h)
//   add [-> reshape] -> layer_norm of the last dimension      the same, which also gives the sum
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the layer_norm that is this node.
void FuseLayerNorm(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
