// Norms of rows, with the sum before them (fuse.h):
//
//   layer_norm of the last dimension                          LayerNorm() or LayerNormOfWide()
//   add [-> reshape] -> layer_norm of the last dimension      LayerNormOfWide(), which also gives the sum
//
// Under autocast a layer_norm gives float32 values, and a residual network's sums are float32 beside branches of 16 bits.
// Whoever rounds the norm's result to 16 bits again (linear, conv2d) gets it rounded by the norm itself; the others get
// float32 values, from the same kernel.
#pragma once

#include <cstdint>

#include "trainer/models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the layer_norm that is this node.
void FuseLayerNorm(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
