#include "base/tensor/foretold_gpu.h"

#include <ATen/cuda/CUDAContextLight.h>

namespace lockstep {
namespace {

GpuTraits& Foretold() {
  static GpuTraits traits;
  return traits;
}

}  // namespace

GpuTraits TraitsOf(const c10::Device& device) {
  if (device.is_meta()) return Foretold();
  const cudaDeviceProp& gpu = *at::cuda::getDeviceProperties(device.index());
  return {.major = gpu.major, .minor = gpu.minor, .multiprocessors = gpu.multiProcessorCount};
}

void Foretell(const GpuTraits& traits) { Foretold() = traits; }

}  // namespace lockstep
