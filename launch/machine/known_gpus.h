// Lists common GPUs, so that the memory of a training on them can be estimated on another machine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/tensor/foretold_gpu.h"

namespace lockstep {

struct KnownGpu {
  std::string_view name;
  GpuTraits traits;
  int64_t memory_mib = 0;    // the size of the GPU's memory, as the driver reports it
  bool is_measured = false;  // whether the memory that Lockstep takes was measured on this GPU
};

std::span<const KnownGpu> KnownGpus();

// Returns the GPU with the name `name`, or null if the list does not have such a GPU. Case and spaces do not matter:
// "rtx3090" finds "RTX 3090".
const KnownGpu* FindGpu(std::string_view name);

// The GPU memory, in MiB, that the CUDA context and CUDA's libraries take for themselves, as measured on one H100.
inline constexpr int64_t kContext_mib = 850;

}  // namespace lockstep
