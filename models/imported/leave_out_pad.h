// Pads of nothing (fuse.h): LibTorch copies their input.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Leaves out the pad that is this node, if it adds nothing, and if nobody writes to its input or its result.
void LeaveOutEmptyPad(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
