#include "trainer/run/device_arithmetic.h"

#include <ATen/cuda/CUDAContext.h>

namespace lockstep {
namespace {

Arithmetic KindOf(config::Precision precision) {
  switch (precision) {
    case config::TF32:
      return Arithmetic::kTf32;
    case config::BF16:
      return Arithmetic::kBf16;
    case config::FP16:
      return Arithmetic::kFp16;
    default:
      return Arithmetic::kFp32;
  }
}

}  // namespace

DeviceArithmetic ArithmeticOf(at::Device device, config::Precision precision) {
  if (!device.is_cuda()) return {};
  const cudaDeviceProp& gpu = *at::cuda::getDeviceProperties(device.index());
  constexpr int kTensorCores = 7;
  constexpr int kTensorCoresOfBf16 = 8;
  DeviceArithmetic arithmetic{.kind = KindOf(precision)};
  arithmetic.peak_flops = PeakFlops(gpu.name, arithmetic.kind);
  if (gpu.major >= kTensorCores) {
    arithmetic.faster_precision = gpu.major >= kTensorCoresOfBf16 ? "BF16" : "FP16";
  }
  return arithmetic;
}

}  // namespace lockstep
