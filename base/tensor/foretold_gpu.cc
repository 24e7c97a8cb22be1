#include "base/tensor/foretold_gpu.h"

#include <ATen/cuda/CUDAContextLight.h>

namespace lockstep {
namespace {

struct ForetoldGpu {
  GpuTraits traits;
  std::optional<c10::Device> stands_for;
};

ForetoldGpu& Foretold() {
  static ForetoldGpu gpu;
  return gpu;
}

}  // namespace

GpuTraits TraitsOf(const c10::Device& device) {
  if (device.is_meta()) return Foretold().traits;
  const cudaDeviceProp& gpu = *at::cuda::getDeviceProperties(device.index());
  return {.major = gpu.major, .minor = gpu.minor, .multiprocessors = gpu.multiProcessorCount};
}

void Foretell(const GpuTraits& traits, std::optional<c10::Device> stands_for) {
  Foretold() = {.traits = traits, .stands_for = stands_for};
}

std::optional<c10::Device> RealGpuOf(const c10::Device& device) {
  return device.is_meta() ? Foretold().stands_for : device;
}

}  // namespace lockstep
