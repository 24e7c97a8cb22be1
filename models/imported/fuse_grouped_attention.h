// scaled_dot_product_attention of separate queries, keys and values (fuse.h):
//
//   keys and values (-> unsqueeze 2 -> expand -> reshape) -> scaled_dot_product_attention      GroupedAttention()
//
// The operations in brackets repeat each head of keys and of values for several heads of queries. GroupedAttention()
// repeats them only where no kernel can share them.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the chain that ends with the scaled_dot_product_attention operation `node`.
void FuseGroupedAttention(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
