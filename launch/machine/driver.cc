#include "launch/machine/driver.h"

#include <cuda_runtime_api.h>
#include <hwloc.h>
#include <hwloc/linux.h>

#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <type_traits>

#include "base/error.h"

namespace lockstep {
namespace {

// The first driver branch that supports this program's CUDA. CUDA 12's is that of CUDA 12.0, as NVIDIA says of 'minor
// version compatibility'.
constexpr int kOldestDriver = CUDART_VERSION >= 13000 ? 580 : 525;

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

cpu_set_t CoresBeside(int gpu) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::array<char, 32> bus_id{};
  if (cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), gpu) != cudaSuccess) return cores;
  // Linux writes the bus ID in lower case: "0000:1b:00.0".
  for (char& c : bus_id) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::string path = fmt::format("/sys/bus/pci/devices/{}/local_cpus", bus_id.data());
  const std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, decltype(&hwloc_bitmap_free)> mask(
      hwloc_bitmap_alloc(), hwloc_bitmap_free);
  if (hwloc_linux_read_path_as_cpumask(path.c_str(), mask.get()) != 0) return cores;
  int core = -1;
  while ((core = hwloc_bitmap_next(mask.get(), core)) >= 0 && core < CPU_SETSIZE) {
    CPU_SET(core, &cores);
  }
  return cores;
}

std::string DriverVersion(const std::string& version_file) {
  // The first line looks like "NVRM version: NVIDIA UNIX x86_64 Kernel Module 535.104.05 Sat Aug 19 ...".
  std::istringstream words(version_file.substr(0, version_file.find('\n')));
  for (std::string word; words >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word[0])) && word.find('.') != std::string::npos) {
      return word;
    }
  }
  return "";
}

std::string InstalledDriver() { return DriverVersion(VersionFile()); }

void RequireWorkingDriver(int code, const std::string& version_file) {
  // CUDA returns cudaErrorInsufficientDriver for a driver that is too old, but also without a driver. An empty
  // `version_file` says that there is no driver.
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
