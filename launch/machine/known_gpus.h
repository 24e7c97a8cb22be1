// The GPUs that people have, so that a training can be judged where there is none.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/tensor/foretold_gpu.h"

namespace lockstep {

struct KnownGpu {
  std::string_view name;
  GpuTraits traits;
  int64_t memory_mib = 0;    // as its driver says
  bool is_measured = false;  // whether Lockstep's memory was measured there
};

std::span<const KnownGpu> KnownGpus();

// Null: it is not known. Case and spaces do not matter: "rtx3090" is "RTX 3090".
const KnownGpu* FindGpu(std::string_view name);

// The MiB of a GPU that CUDA and its libraries take of it for themselves, as measured on one H100.
inline constexpr int64_t kContext_mib = 850;

}  // namespace lockstep
