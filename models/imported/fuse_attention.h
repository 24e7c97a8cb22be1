// Attention of queries, keys and values that one linear layer computes side by side (fuse.h):
//
//   reshape [count, tokens, 3, heads, size] -> permute [2, 0, 3, 1, 4] -> unbind -> attention
//     -> transpose of heads and tokens -> reshape
//
// attention is one of
//   scaled_dot_product_attention without a mask        SelfAttention()
//   scaled_dot_product_attention with a mask           WindowAttention(), or SelfAttention() with the mask
//   (q * scale) @ k^T + bias -> softmax -> @ v         WindowAttention(), and so timm's Swin transformers have it
//
// In windows the mask is a bias [1, heads, tokens, tokens], to which another one, [1, kinds, 1, tokens, tokens], may be
// added that hides tokens of neighbouring windows from each other:
//   mask = bias + hiding.expand(..., heads, ...).reshape([windows, heads, tokens, tokens])
//   scores = ((scores + bias).reshape([..., kinds, heads, tokens, tokens]) + hiding).reshape(the scores' shape)
// Views are reshapes in here (program.cc).
//
// The operations read queries, keys and values where these lie, and write their gradients side by side. When the graph
// runs, WindowAttention() is called if the values have 16 bits, the shapes are these ones, and nothing is dropped; if
// not, SelfAttention(), or for the third form LibTorch's operations. A chain with a scale of its own in
// scaled_dot_product_attention, or of the third form with dropout, is left as it is.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the scaled_dot_product_attention that is this node.
void FuseAttention(Rewriter& rewriter, int64_t node);

// Fuses the attention whose softmax is this node.
void FuseSoftmaxAttention(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
