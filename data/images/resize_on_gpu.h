// Resizes many images in a GPU's memory at once, as data/images/resize.h does on the CPU.
//
// Promise: every output byte is within 1 grey level of the exact value (data/images/resize.h) and depends only on its
// own image.
//
// Each GPU thread computes one output pixel from all source pixels under its filter, in 32-bit floats. The CPU's code
// makes two passes, a vertical and a horizontal one. Two passes would need less arithmetic on the GPU than one, but
// they would need additional memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "data/images/image.h"

namespace lockstep {

struct GpuResize {
  ImageView source;  // in the GPU's memory; if it has no pixels, the output is not written
  Box box;           // a box inside the image
  bool mirror = false;
};

// Resizes the box of each of the `count` jobs, which lie in the GPU's memory, to width x height RGB pixels. The pixels
// of job i begin at output + i * 3 * width * height, in the GPU's memory, in rows without gaps.
void LaunchResize(const GpuResize* jobs, int64_t count, int64_t width, int64_t height,
                  uint8_t* output, cudaStream_t stream);

}  // namespace lockstep
