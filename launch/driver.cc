#include "launch/driver.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/error.h"

namespace lockstep {
namespace {

// The first driver of CUDA 13.
constexpr int kOldestDriver = 580;

std::string VersionFile() {
  std::ifstream file("/proc/driver/nvidia/version");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int VisibleGpus() {
  int gpus = 0;
  const cudaError_t code = cudaGetDeviceCount(&gpus);
  if (code == cudaSuccess) return gpus;
  (void)cudaGetLastError();
  RequireWorkingDriver(code, VersionFile());
  return 0;
}

std::array<unsigned char, 16> UuidOf(int gpu) {
  cudaDeviceProp properties{};
  if (const cudaError_t code = cudaGetDeviceProperties(&properties, gpu); code != cudaSuccess) {
    throw UsageError("GPU {} cannot be used: {}: see nvidia-smi", gpu, cudaGetErrorString(code));
  }
  std::array<unsigned char, 16> uuid;
  std::memcpy(uuid.data(), &properties.uuid, uuid.size());
  return uuid;
}

std::string DriverVersion(const std::string& version_file) {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ..."
  std::istringstream words(version_file.substr(0, version_file.find('\n')));
  for (std::string word; words >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word[0])) && word.find('.') != std::string::npos) {
      return word;
    }
  }
  return "";
}

void RequireWorkingDriver(int code, const std::string& version_file) {
  // Without a driver CUDA calls it too old.
  if (code == cudaErrorNoDevice || version_file.empty()) return;
  if (code == cudaErrorInsufficientDriver) {
    throw UsageError(
        "the NVIDIA driver {} is too old for CUDA {}.{}: install {} or newer, or set device: CPU",
        DriverVersion(version_file), CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
        kOldestDriver);
  }
  throw UsageError(
      "the GPUs of this machine cannot be used: {}: see nvidia-smi, or set device: CPU",
      cudaGetErrorString(static_cast<cudaError_t>(code)));
}

}  // namespace lockstep
