// Linear layers with the activation that follows (fuse.h):
//
//   linear with a bias -> gelu, silu, relu or hardswish      linear without it, BiasActivation()
//
// One kernel adds the bias and applies the activation, and one computes the gradients of both: backward then reads the
// hidden layer's gradient once less, for the bias.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the linear that is this node.
void FuseLinear(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
