// 1x1 convolutions whose input is also read by other operations (fuse.h), for example at the beginning of a residual
// block:
//
//   conv2d of 1x1 pixels      PointwiseConvolution(), which also returns its input, for later operations
//
// The backward of PointwiseConvolution() receives the input's gradient from those later operations, and adds it in the
// kernel of its own matrix product.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the conv2d operation `node` if it can be a 1x1 convolution, if it has no bias, and if later operations also
// read its input.
void FuseFork(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
