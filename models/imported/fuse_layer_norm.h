// LayerNorm, with the sum before it (fuse.h):
//
//   layer_norm of the last dimension                          RowsNorm() (rows_norm.h)
//   add [-> reshape] -> layer_norm of the last dimension      RowsNorm(), which also returns the sum
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the layer_norm operation `node`.
void FuseLayerNorm(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
