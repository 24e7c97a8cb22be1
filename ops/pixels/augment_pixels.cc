#include "ops/pixels/augment_pixels.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <cstdint>

#include "ops/common/launch_arguments.h"
#include "ops/pixels/augment_draws.h"
#include "ops/pixels/augment_pixels_kernel.h"

namespace lockstep::ops {
namespace {

// The following functions give the same results as rgb_to_grayscale, _blend and adjust_* of
// torchvision.transforms.v2.functional, for one float32 image x, [3, height, width].

at::Tensor Grey(const at::Tensor& x) { return 0.2989 * x[0] + 0.587 * x[1] + 0.114 * x[2]; }

at::Tensor Blend(const at::Tensor& x, const at::Tensor& other, double share) {
  return (share * x + (1 - share) * other).clamp(0, 1);
}

// Rotates the hue in the HSV colour space. The computed hue of a grey pixel is arbitrary and has no effect, because the
// pixel's `range` is 0.
at::Tensor AdjustHue(const at::Tensor& x, double turn) {
  const at::Tensor value = x.amax(0);
  const at::Tensor range = value - x.amin(0);
  const at::Tensor divisor = range.where(range > 0, 1);
  const at::Tensor sixths =
      at::where(value == x[0], (x[1] - x[2]) / divisor,
                at::where(value == x[1], 2 + (x[2] - x[0]) / divisor, 4 + (x[0] - x[1]) / divisor));
  const auto channel = [&](double offset) {
    const at::Tensor place = at::remainder(sixths + (6 * turn + offset), 6);
    return value - range * at::minimum(place, 4 - place).clamp(0, 1);
  };
  return at::stack({channel(5), channel(3), channel(1)});
}

at::Tensor WithColours(at::Tensor x, const float* draws) {
  for (int i = 0; i < kColourOperations; ++i) {
    const auto operation = static_cast<AugmentDraw>(draws[kOrder + i]);
    const double factor = draws[operation];
    if (factor == (operation == kHue ? 0 : 1)) continue;
    switch (operation) {
      case kBrightness:
        x = (factor * x).clamp(0, 1);
        break;
      case kContrast:
        x = Blend(x, Grey(x).mean(), factor);
        break;
      case kSaturation:
        x = Blend(x, Grey(x), factor);
        break;
      default:
        x = AdjustHue(x, factor);
    }
  }
  return x;
}

// Mixes, in place, the box of each image with the same box of the image before it.
void MixBoxes(const at::Tensor& images, const float* draws) {
  const auto box = [&](const at::Tensor& all) {
    return all.slice(2, static_cast<int64_t>(draws[kTop]), static_cast<int64_t>(draws[kBottom]))
        .slice(3, static_cast<int64_t>(draws[kLeft]), static_cast<int64_t>(draws[kRight]));
  };
  const at::Tensor own = box(images);
  own.copy_(draws[kOwnInBox] * own + (1 - draws[kOwnInBox]) * box(images.roll(1, 0)));
}

}  // namespace

at::Tensor AugmentPixels(const at::Tensor& pixels, const at::Tensor& draws, const at::Tensor& scale,
                         const at::Tensor& shift, at::ScalarType dtype) {
  if (!IsOnGpu(pixels)) return AugmentPixelsTwin(pixels, draws, scale, shift, dtype);
  const c10::DeviceGuard guard(pixels.device());
  CheckPixels(pixels, scale, shift);
  const at::Tensor scales = scale.contiguous(), shifts = shift.contiguous();
  TORCH_CHECK(draws.scalar_type() == at::kFloat && draws.device() == pixels.device() &&
                  draws.is_contiguous() && draws.dim() == 2 && draws.size(0) == pixels.size(0) &&
                  draws.size(1) == kAugmentDraws,
              "pixels: draws of ", draws.sizes(), " are not float32 [", pixels.size(0), ", ",
              kAugmentDraws, "] on the pixels' device");
  at::Tensor out = at::empty_like(pixels, at::TensorOptions(dtype));
  if (pixels.numel() == 0) return out;
  TORCH_CHECK(pixels.numel() / pixels.size(0) <= INT32_MAX, "an image of 2^31 bytes or more");
  const at::Tensor grey_sums = at::empty({pixels.size(0), kGreyParts}, draws.options());
  Launch(pixels, [&](cudaStream_t stream) {
    LaunchAugmentPixels({.pixels = pixels.const_data_ptr<uint8_t>(),
                         .draws = draws.const_data_ptr<float>(),
                         .scale = scales.const_data_ptr<float>(),
                         .shift = shifts.const_data_ptr<float>(),
                         .grey_sums = grey_sums.mutable_data_ptr<float>(),
                         .out = out.mutable_data_ptr(),
                         .type = TypeOf(out),
                         .count = pixels.size(0),
                         .channels = static_cast<int>(pixels.size(1)),
                         .height = static_cast<int>(pixels.size(2)),
                         .width = static_cast<int>(pixels.size(3)),
                         .channels_last = !pixels.is_contiguous()},
                        stream);
  });
  return out;
}

at::Tensor AugmentPixelsTwin(const at::Tensor& pixels, const at::Tensor& draws,
                             const at::Tensor& scale, const at::Tensor& shift,
                             at::ScalarType dtype) {
  const at::Tensor images = pixels.to(at::kFloat) / 255;
  const at::Tensor drawn = draws.cpu();
  const auto* rows = drawn.const_data_ptr<float>();
  for (int64_t n = 0; n < images.size(0) && images.size(1) == 3; ++n) {
    images[n].copy_(WithColours(images[n], rows + n * kAugmentDraws));
  }
  if (images.size(0) > 0) MixBoxes(images, rows);
  return at::addcmul(shift.view({1, -1, 1, 1}), images, (255 * scale).view({1, -1, 1, 1}))
      .to(dtype);
}

}  // namespace lockstep::ops
