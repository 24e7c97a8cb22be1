// Embeddings and their sums (fuse.h), such as those of tokens, positions and segments at the start of a text
// transformer:
//
//   embedding [-> add of another embedding ...]      EmbeddingSum()
//
// An embedding is not part of the fused sum if other operations also use its result.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the embedding operation `node` with the embeddings that are added to it.
void FuseEmbedding(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
