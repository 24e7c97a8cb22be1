// Residual sums with a layer scale (fuse.h): x + branch * scale, as ConvNeXt and later vision transformers have them.
//
//   mul -> add      ScaledSum()
//
// Whether a factor is a layer scale, one number for each channel of 16-bit values, shows when the graph runs; a product
// of other values stays LibTorch's. Who rounds the float32 sum to 16 bits gets it rounded by the same kernel.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the mul that is this node.
void FuseScaledSum(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
