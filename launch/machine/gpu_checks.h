// The checks that `lockstep doctor` makes on GPUs.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "launch/machine/findings.h"
#include "observe/machine/nvml.h"

namespace lockstep {

// The name of the check of copies to another GPU. It is the last finding that CheckTransfers() returns, if there is
// another GPU.
inline constexpr char kGpuToGpu[] = "gpu to gpu";

// Checks the condition that the driver reports for the GPU. Call it before anything runs on the GPU. `condition` is
// null if the driver does not report one.
Finding CheckGpu(at::Device gpu, const GpuCondition* condition);

// Copies data within the GPU's memory, to and from the host, and to another visible GPU. Compares each copy with the
// original, and the speed of the copies with the maximum of the hardware. Throws c10::Error.
std::vector<Finding> CheckTransfers(at::Device gpu, const GpuCondition* condition);

// Returns the bandwidth of the GPU's NVLinks to another GPU, in one direction, in GB/s; 0 if it is unknown.
double LinkGbs(const GpuCondition* condition);

}  // namespace lockstep
