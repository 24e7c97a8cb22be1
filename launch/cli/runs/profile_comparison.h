// Shows two profiles side by side, kernel by kernel.
#pragma once

#include "observe/profile/profile_files.h"

namespace lockstep {

// Prints the times of a step and of each kernel in both profiles, for the first rank of each profile. The kernel whose
// time has grown most comes first. If `json` is true, prints one line of JSON with all kernels instead.
void PrintProfileComparison(const RunProfile& before, const RunProfile& after, bool json);

}  // namespace lockstep
