// Concatenations that copy less (fuse.h):
//
//   cat [empty constants, x]                   x
//   cat [a, b], ..., cat [a, b, c]             cat [a, b], ..., cat [result of the first, c]
//
// The traces of language models have the first: they add keys and values to a cache that is empty, a constant of shape
// [0]. It is left out if all users of its result round it under autocast; otherwise the result might have another type,
// because the constant's type counts, too. DenseNets have the second: each layer reads the results of all layers before.
// Backward then adds one gradient for each layer instead of one for each pair of layers.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Shortens the aten::cat operation `node`.
void ShortenCat(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
