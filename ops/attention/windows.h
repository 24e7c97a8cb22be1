// Cuts images into the windows within which a Swin transformer computes attention (arXiv:2103.14030), and reassembles
// the images from the windows.
//
// windows[((n rows + i) columns + j), y width + x] = image[n, (i height + y + down) % H, (j width + x + right) % W]
//
// where `image[n]` has H x W pixels and is cut into rows x columns windows of height x width pixels, i and j are the
// row and the column of a window, and y and x are those of a pixel in the window. This is torch.roll by -down and
// -right, followed by a partition into windows. LibTorch rolls in two kernels and copies in a third. In this file one
// kernel rolls and copies, in either direction. The values are only moved, so the result has the same bits as the
// result of LibTorch's operations.
//
// what can fail -> what the caller sees -> the test that shows it
//   windows do not fit the image -> c10::Error -> Windows.RefusesWhatDoesNotFit
//   the kernels do not support the type or the number of channels -> the result of the twin -> WindowsTest.AreLibTorchs
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

struct WindowCut {
  int64_t height, width;  // the size of a window in pixels, which divides the image's size
  // The row and the column of the image where the first window begins, in pixels. Any integers are valid. A window that
  // extends beyond an edge of the image continues at the opposite edge.
  int64_t down = 0, right = 0;
};

// Cuts images [count, H, W, channels] into windows [count * rows * columns, height * width, channels], contiguous. The
// gradient is computed by FromWindows(), and can be differentiated again. The result is a view of `image` if `image` is
// contiguous and no value has to move, for example if a window is as large as the image.
//
// A kernel runs if HasWindowsKernels(image) is true. In all other cases ToWindowsTwin() runs.
at::Tensor ToWindows(const at::Tensor& image, const WindowCut& cut);

// Computes the inverse of ToWindows(): joins windows [count * rows * columns, height * width, channels] to images
// [count, H, W, channels] of H = `image_height` x W = `image_width` pixels. The gradient is computed by ToWindows().
at::Tensor FromWindows(const at::Tensor& windows, int64_t image_height, int64_t image_width,
                       const WindowCut& cut);

// Returns whether the kernels support `tensor`: values of 16 or 32 bits on a GPU, where the channels of a pixel take a
// multiple of 16 bytes.
bool HasWindowsKernels(const at::Tensor& tensor);

// Compute the same results as ToWindows() and FromWindows() with plain ATen calls, on any device and type.
at::Tensor ToWindowsTwin(const at::Tensor& image, const WindowCut& cut);
at::Tensor FromWindowsTwin(const at::Tensor& windows, int64_t image_height, int64_t image_width,
                           const WindowCut& cut);

}  // namespace lockstep::ops
