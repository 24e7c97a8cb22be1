// Declares the function that launches the kernel of normalize_pixels.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"

namespace lockstep::ops {

// Enqueues, on `stream`, the kernel that computes out[i] = pixels[i] * scale[c] + shift[c] for i < count, where c = i /
// run % channels. `run` is the number of bytes of a channel's plane, or 1 if the channels of a pixel lie side by side.
// All pointers point to device memory.
void LaunchNormalizePixels(const uint8_t* pixels, const float* scale, const float* shift, void* out,
                           FloatType type, int64_t count, int64_t channels, int64_t run,
                           cudaStream_t stream);

}  // namespace lockstep::ops
