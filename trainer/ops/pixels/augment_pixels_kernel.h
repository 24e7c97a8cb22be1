// The kernels of augment_pixels.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/common/float_type.h"

namespace lockstep::ops {

// Sums that make up an image's grey mean.
constexpr int kGreyParts = 16;

// All pointers are the device's.
struct AugmentArguments {
  const uint8_t* pixels;  // [count, channels, height, width]
  const float* draws;     // [count, kAugmentDraws]
  const float* scale;     // [channels]
  const float* shift;     // [channels]
  float* grey_sums;       // [count, kGreyParts], to work with
  void* out;              // of pixels' shape and order
  FloatType type;         // out's
  int64_t count;
  int channels;  // an image's channels * height * width is below 2^31
  int height;
  int width;
  bool channels_last;
};

// Enqueues AugmentPixels on `stream`.
void LaunchAugmentPixels(const AugmentArguments& arguments, cudaStream_t stream);

}  // namespace lockstep::ops
