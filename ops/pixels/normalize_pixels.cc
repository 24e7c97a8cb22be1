#include "ops/pixels/normalize_pixels.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "ops/common/launch_arguments.h"
#include "ops/pixels/normalize_pixels_kernel.h"

namespace lockstep::ops {

at::Tensor NormalizePixels(const at::Tensor& pixels, const at::Tensor& scale,
                           const at::Tensor& shift, at::ScalarType dtype) {
  if (!IsOnGpu(pixels)) return NormalizePixelsTwin(pixels, scale, shift, dtype);
  const c10::DeviceGuard guard(pixels.device());
  CheckPixels(pixels, scale, shift);
  const at::Tensor scales = scale.contiguous(), shifts = shift.contiguous();
  at::Tensor out = at::empty_like(pixels, at::TensorOptions(dtype));
  // The number of consecutive bytes that belong to one channel.
  const int64_t run = pixels.is_contiguous() ? pixels.size(2) * pixels.size(3) : 1;
  Launch(pixels, [&](cudaStream_t stream) {
    LaunchNormalizePixels(pixels.const_data_ptr<uint8_t>(), scales.const_data_ptr<float>(),
                          shifts.const_data_ptr<float>(), out.mutable_data_ptr(), TypeOf(out),
                          pixels.numel(), pixels.size(1), run, stream);
  });
  return out;
}

at::Tensor NormalizePixelsTwin(const at::Tensor& pixels, const at::Tensor& scale,
                               const at::Tensor& shift, at::ScalarType dtype) {
  return at::addcmul(shift.view({1, -1, 1, 1}), pixels.to(at::kFloat), scale.view({1, -1, 1, 1}))
      .to(dtype);
}

}  // namespace lockstep::ops
