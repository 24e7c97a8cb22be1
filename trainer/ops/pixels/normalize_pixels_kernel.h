// The kernel of normalize_pixels.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/common/float_type.h"

namespace lockstep::ops {

// Enqueues out[i] = pixels[i] * scale[c] + shift[c], c = i / run % channels, for i < count on `stream`:
// `run` is a plane's bytes, or 1 where a pixel's channels lie side by side. All pointers are the
// device's.
void LaunchNormalizePixels(const uint8_t* pixels, const float* scale, const float* shift, void* out,
                           FloatType type, int64_t count, int64_t channels, int64_t run,
                           cudaStream_t stream);

}  // namespace lockstep::ops
