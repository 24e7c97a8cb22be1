// Shows two profiles side by side, kernel by kernel.
#pragma once

#include "observe/profile/profile_files.h"

namespace lockstep {

// Prints, for the first rank of both, what a step and each kernel took before and take after, what has grown most first.
// `json`: prints one line of JSON with all kernels.
void PrintProfileComparison(const RunProfile& before, const RunProfile& after, bool json);

}  // namespace lockstep
