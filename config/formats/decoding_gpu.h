// DecodingGpu(): decides whether images are decoded on the GPU or by the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "config/schema/data.pb.h"

namespace lockstep {

// Returns the GPU that decodes the images of a rank with this device and this number of cores; nothing if the CPU
// decodes them. Throws Error (kUsage) if the setting config.decode is not possible.
std::optional<at::Device> DecodingGpu(const config::Images& config, at::Device device, int cores);

}  // namespace lockstep
