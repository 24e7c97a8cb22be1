// The kernels of windows.h. They move packs of 16 bytes, whatever these hold. All pointers point to device memory and
// are aligned to packs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace lockstep::ops {

// The kernels count packs in 31 bits.
constexpr int64_t kMostWindowPacks = INT32_MAX;

// All but `down` and `right` are at least 1, and their product is at most kMostWindowPacks.
struct WindowsShape {
  int64_t count;
  unsigned rows, columns;  // of windows in an image
  unsigned height, width;  // of a window
  unsigned down, right;    // of the first window; less than the image's height and width
  unsigned packs;          // of a pixel

  int64_t Packs() const { return count * rows * columns * height * width * packs; }
};

// Enqueues the kernel that reads images and writes windows.
void LaunchToWindows(const void* image, void* windows, const WindowsShape& shape,
                     cudaStream_t stream);

// Enqueues the kernel that reads windows and writes images.
void LaunchFromWindows(const void* windows, void* image, const WindowsShape& shape,
                       cudaStream_t stream);

}  // namespace lockstep::ops
