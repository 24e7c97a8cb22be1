// torch.nn.MultiheadAttention as self-attention, with batch_first and without masks (fuse.h), as torch.nn's transformer
// layers and torchvision's vision transformers use it:
//
//   transpose to [tokens, count, width] -> linear -> unflatten -> unsqueeze -> transpose -> squeeze -> contiguous
//     -> select of queries, keys and values; each of them: reshape -> transpose -> reshape [count, heads, tokens, size]
//     -> scaled_dot_product_attention -> permute -> reshape -> linear -> reshape -> transpose
//
// This chain becomes linear -> SelfAttention() -> linear on [count, tokens, width], in which nothing is transposed or
// copied.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the chain around the scaled_dot_product_attention operation `node`.
void FuseMultiheadAttention(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
