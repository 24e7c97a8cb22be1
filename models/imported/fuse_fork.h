// 1x1 convolutions whose input others read, too (fuse.h), as at the beginning of a residual block:
//
//   conv2d of 1x1 pixels      PointwiseConvolution(), which also gives its input to those who read it later
//
// Where gradients of the input meet, the convolution's is then added as its matrix product computes it.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the conv2d that is this node.
void FuseFork(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
