// Linear layers with the activation that follows (fuse.h):
//
//   linear with a bias -> gelu, silu, relu or hardswish      linear without the bias -> BiasActivation()
//
// One kernel adds the bias and applies the activation, and one kernel computes the gradients of both: backward needs no
// separate pass over the hidden layer's gradient for the bias. These kernels are for rows that are contiguous. What
// follows a linear layer that reads columns is left to fuse_generated.h.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Returns whether `node` is a linear operation whose input is the result of transposing the last two of three
// dimensions, as in the token mixing of mixers.
bool ReadsColumns(const Rewriter& rewriter, int64_t node);

// Fuses the linear operation `node`.
void FuseLinear(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
