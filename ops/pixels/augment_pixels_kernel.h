// Declares the functions that launch the kernels of augment_pixels.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"

namespace lockstep::ops {

// The number of partial sums from which an image's mean grey value is computed.
constexpr int kGreyParts = 16;

// All pointers point to device memory.
struct AugmentArguments {
  const uint8_t* pixels;  // [count, channels, height, width]
  const float* draws;     // [count, kAugmentDraws]
  const float* scale;     // [channels]
  const float* shift;     // [channels]
  float* grey_sums;       // scratch memory: [count, kGreyParts]
  void* out;              // has pixels' shape and memory format
  FloatType type;         // the type of `out`
  int64_t count;
  int channels;  // an image's channels * height * width is below 2^31
  int height;
  int width;
  bool channels_last;
};

// Enqueues the kernels of AugmentPixels on `stream`.
void LaunchAugmentPixels(const AugmentArguments& arguments, cudaStream_t stream);

}  // namespace lockstep::ops
