#include "ops/attention/windows.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "ops/attention/windows_kernel.h"
#include "ops/common/launch_arguments.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr int64_t kPackBytes = 16;

int64_t Modulo(int64_t a, int64_t b) { return (a % b + b) % b; }

// Says how images of height x width pixels are cut into windows.
struct Cut {
  int64_t height, width;    // the size of an image in pixels
  int64_t rows, columns;    // the numbers of rows and of columns of windows in an image
  WindowCut window;         // `down` and `right` are reduced to positions inside of the image
  int64_t count, channels;  // the number of images, and the number of channels

  Cut(int64_t image_count, int64_t image_height, int64_t image_width, int64_t image_channels,
      const WindowCut& cut)
      : height(image_height),
        width(image_width),
        window(cut),
        count(image_count),
        channels(image_channels) {
    TORCH_CHECK(height > 0 && width > 0 && cut.height > 0 && cut.width > 0 &&
                    height % cut.height == 0 && width % cut.width == 0,
                "windows of ", cut.height, " x ", cut.width, " pixels do not divide images of ",
                height, " x ", width);
    rows = height / cut.height;
    columns = width / cut.width;
    window.down = Modulo(cut.down, height);
    window.right = Modulo(cut.right, width);
  }

  bool IsShifted() const { return window.down != 0 || window.right != 0; }
  // Returns whether the windows have the same order of values in memory as the image.
  bool MovesNothing() const { return !IsShifted() && (columns == 1 || window.height == 1); }

  std::vector<int64_t> ImageSizes() const { return {count, height, width, channels}; }
  std::vector<int64_t> WindowsSizes() const {
    return {count * rows * columns, window.height * window.width, channels};
  }
  WindowsShape Shape(int64_t value_bytes) const {
    return {.count = count,
            .rows = static_cast<unsigned>(rows),
            .columns = static_cast<unsigned>(columns),
            .height = static_cast<unsigned>(window.height),
            .width = static_cast<unsigned>(window.width),
            .down = static_cast<unsigned>(window.down),
            .right = static_cast<unsigned>(window.right),
            .packs = static_cast<unsigned>(channels * value_bytes / kPackBytes)};
  }
};

Cut CutOfImage(const at::Tensor& image, const WindowCut& cut) {
  TORCH_CHECK(image.dim() == 4, "images are [count, height, width, channels], not ", image.sizes());
  return {image.size(0), image.size(1), image.size(2), image.size(3), cut};
}

Cut CutOfWindows(const at::Tensor& windows, int64_t height, int64_t width, const WindowCut& cut) {
  TORCH_CHECK(windows.dim() == 3, "windows are [windows, pixels, channels], not ", windows.sizes());
  Cut found(/*image_count=*/0, height, width, windows.size(2), cut);
  found.count = windows.size(0) / (found.rows * found.columns);
  TORCH_CHECK(windows.sizes() == found.WindowsSizes(), "windows ", windows.sizes(),
              " are not those of images of ", height, " x ", width);
  return found;
}

at::Tensor MovedToWindows(const at::Tensor& image, const Cut& cut) {
  const at::Tensor windows = at::empty(cut.WindowsSizes(), image.options());
  Launch(image, [&](cudaStream_t stream) {
    LaunchToWindows(image.const_data_ptr(), windows.mutable_data_ptr(),
                    cut.Shape(image.element_size()), stream);
  });
  return windows;
}

at::Tensor MovedFromWindows(const at::Tensor& windows, const Cut& cut) {
  const at::Tensor image = at::empty(cut.ImageSizes(), windows.options());
  Launch(windows, [&](cudaStream_t stream) {
    LaunchFromWindows(windows.const_data_ptr(), image.mutable_data_ptr(),
                      cut.Shape(windows.element_size()), stream);
  });
  return image;
}

// Moves values from images to windows, or from windows to images. The gradient of each direction is computed by the
// other direction, and can be differentiated again.
class FusedWindows : public torch::autograd::Function<FusedWindows> {
 public:
  static Variable forward(AutogradContext* context, const Variable& from, bool to_windows,
                          int64_t height, int64_t width, const std::vector<int64_t>& window) {
    context->saved_data["to_windows"] = to_windows;
    context->saved_data["height"] = height;
    context->saved_data["width"] = width;
    context->saved_data["window"] = window;
    const WindowCut cut = CutOf(window);
    return to_windows ? MovedToWindows(from, CutOfImage(from, cut))
                      : MovedFromWindows(from, CutOfWindows(from, height, width, cut));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const WindowCut cut = CutOf(context->saved_data["window"].toIntVector());
    const at::Tensor gradient =
        context->saved_data["to_windows"].toBool()
            ? FromWindows(gradients[0], context->saved_data["height"].toInt(),
                          context->saved_data["width"].toInt(), cut)
            : ToWindows(gradients[0], cut);
    return {gradient, {}, {}, {}, {}};
  }

  static at::Tensor Moved(const at::Tensor& from, bool to_windows, const Cut& cut) {
    return apply(
        Aligned(from.contiguous()), to_windows, cut.height, cut.width,
        std::vector{cut.window.height, cut.window.width, cut.window.down, cut.window.right});
  }

 private:
  static WindowCut CutOf(const std::vector<int64_t>& window) {
    return {.height = window[0], .width = window[1], .down = window[2], .right = window[3]};
  }
};

}  // namespace

bool HasWindowsKernels(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.element_size());
  return IsOnGpu(tensor) && (bytes == 2 || bytes == 4) && !tensor.is_complex() &&
         tensor.dim() > 0 && tensor.numel() > 0 && tensor.size(-1) * bytes % kPackBytes == 0 &&
         tensor.numel() * bytes / kPackBytes <= kMostWindowPacks;
}

at::Tensor ToWindows(const at::Tensor& image, const WindowCut& cut) {
  const Cut own = CutOfImage(image, cut);
  if (own.MovesNothing()) return image.contiguous().view(own.WindowsSizes());
  if (!HasWindowsKernels(image)) return ToWindowsTwin(image, cut);
  return FusedWindows::Moved(image, /*to_windows=*/true, own);
}

at::Tensor FromWindows(const at::Tensor& windows, int64_t image_height, int64_t image_width,
                       const WindowCut& cut) {
  const Cut own = CutOfWindows(windows, image_height, image_width, cut);
  if (own.MovesNothing()) return windows.contiguous().view(own.ImageSizes());
  if (!HasWindowsKernels(windows)) {
    return FromWindowsTwin(windows, image_height, image_width, cut);
  }
  return FusedWindows::Moved(windows, /*to_windows=*/false, own);
}

at::Tensor ToWindowsTwin(const at::Tensor& image, const WindowCut& cut) {
  const Cut own = CutOfImage(image, cut);
  const at::Tensor rolled =
      own.IsShifted() ? at::roll(image, {-own.window.down, -own.window.right}, {1, 2}) : image;
  return rolled.reshape({own.count, own.rows, cut.height, own.columns, cut.width, own.channels})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape(own.WindowsSizes())
      .contiguous();
}

at::Tensor FromWindowsTwin(const at::Tensor& windows, int64_t image_height, int64_t image_width,
                           const WindowCut& cut) {
  const Cut own = CutOfWindows(windows, image_height, image_width, cut);
  const at::Tensor image =
      windows.reshape({own.count, own.rows, own.columns, cut.height, cut.width, own.channels})
          .permute({0, 1, 3, 2, 4, 5})
          .reshape(own.ImageSizes())
          .contiguous();
  return own.IsShifted() ? at::roll(image, {own.window.down, own.window.right}, {1, 2}) : image;
}

}  // namespace lockstep::ops
