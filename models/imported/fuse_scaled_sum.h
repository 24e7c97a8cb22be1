// Residual sums with a layer scale (fuse.h): x + branch * scale, as in ConvNeXt and later vision transformers.
//
//   mul -> add      ScaledSum()
//
// Only when the graph runs is it known whether a factor is a layer scale, which has one number for each channel of
// 16-bit values; other products run as LibTorch's operations. For operations that round the float32 sum to 16 bits, the
// same kernel also writes the rounded sum.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the mul operation `node` and the addition that follows it.
void FuseScaledSum(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
