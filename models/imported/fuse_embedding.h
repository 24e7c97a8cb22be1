// Embeddings and their sums (fuse.h), as transformers of texts begin with: tokens, positions, segments.
//
//   embedding [-> add of another embedding ...]      EmbeddingSum()
//
// An embedding that others use as well stays by itself.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the embedding that is this node with those that are added to it.
void FuseEmbedding(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
