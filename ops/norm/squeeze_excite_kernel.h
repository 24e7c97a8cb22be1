// Declares the functions that launch the kernels of squeeze_excite.h. All pointers point to device memory. Images are
// [count, pixels, channels] in a 16-bit type, and the number of channels is a multiple of 8. Tensors with one value for
// each channel of an image (sums, gate, shift) are [count, channels] in the same type.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"

namespace lockstep::ops {

struct SqueezeShape {
  int64_t count;
  int64_t pixels;
  int64_t channels;
  int multiprocessors;
};

// The tensors of sums[n, c] = factor * the sum over p of x[n, p, c] * by[n, p, c].
struct PixelSums {
  const void* x;
  const void* by;  // nullptr counts as 1
  void* sums;
  float factor;
  // Scratch memory: [PixelSumSlices(shape), count, channels]; nullptr if there is one slice.
  float* partials;
};

// The tensors of y[n, p, c] = x[n, p, c] * gate[n, c] + factor * shift[n, c].
struct GatedPixels {
  const void* x;      // nullptr counts as 0
  const void* gate;   // nullptr counts as 1
  const void* shift;  // nullptr counts as 0
  float factor;
  void* y;
};

// Returns into how many slices an image's pixels are divided. If there are several slices, each slice has its own
// partial sums.
int64_t PixelSumSlices(const SqueezeShape& shape);

void LaunchPixelSums(const PixelSums& tensors, FloatType type, const SqueezeShape& shape,
                     cudaStream_t stream);

void LaunchGatedPixels(const GatedPixels& tensors, FloatType type, const SqueezeShape& shape,
                       cudaStream_t stream);

}  // namespace lockstep::ops
