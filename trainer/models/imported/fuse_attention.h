// Attention of queries, keys and values that one linear layer computes side by side (fuse.h):
//
//   reshape [count, tokens, 3, heads, size] -> permute [2, 0, 3, 1, 4] -> unbind -> scaled_dot_product_attention
//     -> transpose of heads and tokens -> reshape             SelfAttention(), CausalSelfAttention()
//
// They read queries, keys and values where these lie, and write their gradients side by side. A chain with a mask or a
// scale of its own is left as it is.
#pragma once

#include <cstdint>

#include "trainer/models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the scaled_dot_product_attention that is this node.
void FuseAttention(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
