// Attention of queries, keys and values that one linear layer computes side by side (fuse.h):
//
//   reshape [count, tokens, 3, heads, size] -> permute [2, 0, 3, 1, 4] -> unbind, or three selects -> attention
//     -> transpose of heads and tokens -> reshape
//
// The attention is one of
//   scaled_dot_product_attention without a mask        SelfAttention()
//   scaled_dot_product_attention with a mask           WindowAttention(), or SelfAttention() with the mask
//   (q * scale) @ k^T + bias -> softmax -> @ v         WindowAttention(); timm's Swin transformers use this form
//   (q/|q| @ (k/|k|)^T) * scale + bias -> softmax -> @ v
//       UnitQueries() and WindowAttention(); Swin transformers V2 use this form, with a learned scale for each head, and
//       q/|q| is normalize(), a division by max(|q|, eps)
//
// For windows of an image, the mask is a bias [1, heads, tokens, tokens]. A second mask `hiding`, [1, kinds, 1, tokens,
// tokens], may be added to the bias; in a window of a rolled image, it hides tokens of different regions of the image
// from each other:
//   mask = bias + hiding.expand(..., heads, ...).reshape([windows, heads, tokens, tokens])
//   scores = ((scores + bias).reshape([..., kinds, heads, tokens, tokens]) + hiding).reshape(the scores' shape)
// The reader of a graph replaces views by reshapes (program.cc), so only reshapes are looked for.
//
// The fused operations read queries, keys and values side by side in the linear layer's output, and write their
// gradients in the same layout. When the graph runs, WindowAttention() is called if the values have 16 bits, the shapes
// are the ones above, and there is no dropout; otherwise SelfAttention() is called, or, for the third and fourth forms,
// LibTorch's operations. Not fused are scaled_dot_product_attention with an explicit scale, and the third and fourth
// forms with dropout.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the chain around the scaled_dot_product_attention operation `node`.
void FuseAttention(Rewriter& rewriter, int64_t node);

// Fuses the chain around the softmax operation `node`.
void FuseSoftmaxAttention(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
