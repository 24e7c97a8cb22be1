// Makes the checks of GPUs for `lockstep doctor`.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "launch/machine/findings.h"
#include "observe/machine/nvml.h"

namespace lockstep {

// The name of the check of copies to another GPU. If there is another GPU, the last finding that CheckTransfers()
// returns comes from this check.
inline constexpr char kGpuToGpu[] = "gpu to gpu";

// Checks `condition`, which is what the driver reports about the GPU; null: the driver reports nothing. The condition
// must have been read before this process computes anything on the GPU, because the memory of these computations would
// count as memory that another program uses.
Finding CheckGpu(at::Device gpu, const GpuCondition* condition);

// Copies data within the GPU's memory, to and from the host, and to another visible GPU. Compares each copy with the
// original, and the speed of each kind of copy with the maximum of the hardware. `condition` is as for CheckGpu().
// Throws c10::Error.
std::vector<Finding> CheckTransfers(at::Device gpu, const GpuCondition* condition);

// Returns the bandwidth of all active NVLinks of the GPU together, in one direction, in GB/s; 0 if it is unknown.
double LinkGbs(const GpuCondition* condition);

}  // namespace lockstep
