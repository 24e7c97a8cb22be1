// The checks that `lockstep doctor` makes on GPUs.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "launch/machine/findings.h"
#include "observe/machine/nvml.h"

namespace lockstep {

// The name of the check of copies to another GPU, the last one of CheckTransfers().
inline constexpr char kGpuToGpu[] = "gpu to gpu";

// The GPU itself, before anything runs on it, as the driver sees it. `condition`: null where it does not say.
Finding CheckGpu(at::Device gpu, const GpuCondition* condition);

// Copies within the GPU's memory, to and from the host, and to another visible GPU, each compared with what was sent
// and with what the hardware can carry. Throws c10::Error.
std::vector<Finding> CheckTransfers(at::Device gpu, const GpuCondition* condition);

// What the GPU's NVLinks carry to another GPU, one way, in GB/s; 0: not known.
double LinkGbs(const GpuCondition* condition);

}  // namespace lockstep
