// torch.nn.MultiheadAttention of one sequence with itself, batch_first, without masks (fuse.h), as torch.nn's
// transformer layers and torchvision's vision transformers have it:
//
//   transpose to [tokens, count, width] -> linear -> unflatten -> unsqueeze -> transpose -> squeeze -> contiguous
//     -> select of queries, keys and values; of each: reshape -> transpose -> reshape [count, heads, tokens, size]
//     -> scaled_dot_product_attention -> permute -> reshape -> linear -> reshape -> transpose
//
// becomes linear -> SelfAttention() -> linear on [count, tokens, width], in which nothing is transposed or copied.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the scaled_dot_product_attention that is this node.
void FuseMultiheadAttention(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
