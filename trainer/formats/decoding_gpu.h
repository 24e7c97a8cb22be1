// DecodingGpu(): decides whether images are decoded on the GPU or by the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "trainer/config/schema/data.pb.h"

namespace lockstep {

// The GPU that decodes the images of a rank with this device and so many cores; none: the CPU does. Throws Error
// (kUsage) where config.decode cannot be.
std::optional<at::Device> DecodingGpu(const config::Images& config, at::Device device, int cores);

}  // namespace lockstep
