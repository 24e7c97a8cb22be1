// Max-pooling of images (fuse.h): a max_pool2d with a square window becomes ForkedMaxPool().
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the max_pool2d operation `node`.
void FuseMaxPool(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
