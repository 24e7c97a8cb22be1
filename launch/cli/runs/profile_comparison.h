// Shows two profiles side by side, kernel by kernel.
#pragma once

#include "observe/profile/profile_files.h"

namespace lockstep {

// Prints the times, in ms, of a step and of at most ten kernels on the first rank of each profile. These are the
// kernels whose times differ most between the profiles, with the greatest difference first. If `json` is true, prints
// one line of JSON with all kernels instead.
void PrintProfileComparison(const RunProfile& before, const RunProfile& after, bool json);

}  // namespace lockstep
