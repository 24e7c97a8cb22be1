// Cuts images into windows, within which a Swin transformer has its attention (arXiv:2103.14030), and puts them
// together again.
//
// windows[((n rows + i) columns + j), y width + x] = image[n, (i height + y + down) % H, (j width + x + right) % W]
//
// where an image of H x W pixels has rows x columns windows of height x width pixels. It is a roll by -down and -right,
// and then a partition. LibTorch rolls in two kernels and copies in a third; here one kernel copies each way. Values
// are moved as they are, so all bits are those of LibTorch's operations.
//
// what can fail -> what the caller sees -> the test that shows it
//   windows do not fit the image -> c10::Error -> Windows.RefusesWhatDoesNotFit
//   a type or a number of channels that the kernels do not take -> the twin runs -> WindowsTest.AreLibTorchs
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

struct WindowCut {
  int64_t height, width;  // of a window, in pixels; they divide those of an image
  // Where the first window's first pixel is. Windows that go beyond an edge go on at the opposite one. Any integers.
  int64_t down = 0, right = 0;
};

// [count, H, W, channels] -> [count * rows * columns, height * width, channels], contiguous. The gradient is
// FromWindows(), which can be differentiated again. The result is a view of `image` where that is contiguous and no
// value has to move, as where a window is as large as the image.
//
// The kernel runs on a GPU if HasWindowsKernels(); in all other cases the twin does.
at::Tensor ToWindows(const at::Tensor& image, const WindowCut& cut);

// The inverse: [count * rows * columns, height * width, channels] -> [count, H, W, channels], for images of H =
// `image_height` x W = `image_width` pixels. Everything else is as above.
at::Tensor FromWindows(const at::Tensor& windows, int64_t image_height, int64_t image_width,
                       const WindowCut& cut);

// Whether the kernels move it: values of 16 or 32 bits, on a GPU, whose channels take a multiple of 16 bytes.
bool HasWindowsKernels(const at::Tensor& tensor);

// The same operations from plain ATen calls, for any device and type.
at::Tensor ToWindowsTwin(const at::Tensor& image, const WindowCut& cut);
at::Tensor FromWindowsTwin(const at::Tensor& windows, int64_t image_height, int64_t image_width,
                           const WindowCut& cut);

}  // namespace lockstep::ops
