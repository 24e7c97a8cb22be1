// Declares the functions that launch the kernels of windows.h. They move packs of 16 bytes, whatever the type of the
// values. All pointers point to device memory and are aligned to packs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace lockstep::ops {

// The kernels count packs in 31 bits.
constexpr int64_t kMostWindowPacks = INT32_MAX;

// All but `down` and `right` are at least 1, and their product is at most kMostWindowPacks.
struct WindowsShape {
  int64_t count;
  unsigned rows, columns;  // how many windows an image has, down and across
  unsigned height, width;  // the size of a window in pixels
  unsigned down, right;    // the first window's first pixel; less than the image's size
  unsigned packs;          // how many packs a pixel has

  int64_t Packs() const { return count * rows * columns * height * width * packs; }
};

// Enqueues the kernel that reads images and writes windows.
void LaunchToWindows(const void* image, void* windows, const WindowsShape& shape,
                     cudaStream_t stream);

// Enqueues the kernel that reads windows and writes images.
void LaunchFromWindows(const void* windows, void* image, const WindowsShape& shape,
                       cudaStream_t stream);

}  // namespace lockstep::ops
