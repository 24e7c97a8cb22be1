// Linear layers with the activation that follows (fuse.h):
//
//   linear with a bias -> gelu, silu, relu or hardswish      linear without the bias -> BiasActivation()
//
// One kernel adds the bias and applies the activation, and one kernel computes the gradients of both: backward needs no
// separate pass over the hidden layer's gradient for the bias.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the linear operation `node`.
void FuseLinear(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
