// Pads of size 0 (fuse.h), for which LibTorch would copy the input.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Removes the pad operation `node` if it pads by 0 on all sides, and no operation writes to its input or its result in
// place.
void LeaveOutEmptyPad(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
