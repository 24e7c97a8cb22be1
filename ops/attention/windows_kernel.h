// Declares the functions that launch the kernels of windows.h. The kernels move packs of 16 bytes, whatever the type of
// the values. All pointers point to device memory and are aligned to 16 bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace lockstep::ops {

// The maximum of WindowsShape::Packs(). The limit exists because the kernels count packs in 31 bits.
constexpr int64_t kMostWindowPacks = INT32_MAX;

// The sizes for the kernels. All members but `down` and `right` are at least 1, and Packs() is at most
// kMostWindowPacks.
struct WindowsShape {
  int64_t count;
  unsigned rows, columns;  // the numbers of rows and of columns of windows in an image
  unsigned height, width;  // the size of a window in pixels
  unsigned down, right;    // the row and the column of the image where the first window begins
  unsigned packs;          // the number of packs of a pixel

  int64_t Packs() const { return count * rows * columns * height * width * packs; }
};

// Enqueues the kernel that reads images and writes windows.
void LaunchToWindows(const void* image, void* windows, const WindowsShape& shape,
                     cudaStream_t stream);

// Enqueues the kernel that reads windows and writes images.
void LaunchFromWindows(const void* windows, void* image, const WindowsShape& shape,
                       cudaStream_t stream);

}  // namespace lockstep::ops
