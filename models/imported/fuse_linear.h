// Linear layers with the activation that follows, and linear layers whose input is also read by later operations (fuse.h),
// for example the layers that compute queries, keys and values:
//
//   linear with a bias -> gelu, silu, relu or hardswish      linear without the bias -> BiasActivation()
//   linear                                                   LinearAndInput(), which also returns its input, for later
//                                                            operations
//
// In the first case one kernel adds the bias and applies the activation, and one kernel computes the gradients of both:
// backward needs no separate pass over the hidden layer's gradient for the bias. In the second case backward receives
// the input's gradient from the later operations, and adds it in the kernel of its own matrix product. Both may be true
// of one layer. These kernels are for rows that are contiguous. What follows a linear layer that reads columns is left
// to fuse_generated.h.
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
