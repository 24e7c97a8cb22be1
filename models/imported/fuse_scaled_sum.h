// Residual sums with a layer scale (fuse.h): x + branch * scale, as in ConvNeXt and later vision transformers.
//
//   mul -> add      ScaledSum()
//
// A factor is a layer scale if it has one number for each channel of the branch. Whether the factor is a layer scale,
// and whether the kernel supports the tensors, is known only when the graph runs. (HasScaledSumKernels() checks the
// tensors: among other conditions, the branch must be on a GPU and have a 16-bit type.) If the factor is no layer
// scale, or the kernel does not support the tensors, LibTorch's operations are called. If later operations round the
// float32 sum to 16 bits, the kernel of the sum also writes the rounded sum.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the mul operation `node` and the addition that follows it.
void FuseScaledSum(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
