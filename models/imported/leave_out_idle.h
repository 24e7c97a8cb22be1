// Operations that return their input unchanged (fuse.h): pads of size 0, which LibTorch would copy, and dropouts that drop
// nothing. Patterns would not see that the operations before and after them belong together.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Removes the pad operation `node` if it pads by 0 on all sides, and no operation writes to its input or its result in
// place.
void LeaveOutEmptyPad(Rewriter& rewriter, int64_t node);

// Removes the dropout operation `node` if its probability is 0 or it is not in training mode. LibTorch returns the input
// itself then, so an operation may write to it.
void LeaveOutIdleDropout(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
