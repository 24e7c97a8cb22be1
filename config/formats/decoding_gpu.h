// DecodingGpu(): decides whether images are decoded on the GPU or on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "config/schema/data.pb.h"

namespace lockstep {

// Returns the GPU that decodes the images of a rank with this device and this number of CPU cores; nothing if the CPU
// decodes them. Throws Error (kUsage) if config.decode asks for the GPU but the device cannot decode images.
std::optional<at::Device> DecodingGpu(const config::Images& config, at::Device device, int cores);

}  // namespace lockstep
