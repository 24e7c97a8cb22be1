#include "observe/machine/nvml.h"

#include <fmt/format.h>
#include <nvml.h>

#include <algorithm>
#include <string_view>

#include "observe/machine/nvml_library.h"

namespace lockstep {
namespace {

std::string ReasonText(unsigned long long reasons) {
  if ((reasons & nvmlClocksThrottleReasonHwPowerBrakeSlowdown) != 0) return "the power supply";
  if ((reasons &
       (nvmlClocksThrottleReasonHwThermalSlowdown | nvmlClocksEventReasonSwThermalSlowdown)) != 0) {
    return "heat";
  }
  if ((reasons & nvmlClocksThrottleReasonHwSlowdown) != 0) return "hardware protection";
  return "";
}

void ReadLinks(const NvmlLibrary& nvml, nvmlDevice_t gpu, GpuCondition& condition) {
  unsigned int links = NVML_NVLINK_MAX_LINKS;
  for (unsigned int link = 0; link < links; ++link) {
    nvmlEnableState_t state = NVML_FEATURE_DISABLED;
    if (nvml.Call<decltype(nvmlDeviceGetNvLinkState)>("nvmlDeviceGetNvLinkState", gpu, link,
                                                      &state) != NVML_SUCCESS) {
      continue;
    }
    ++condition.nvlinks;
    if (state == NVML_FEATURE_ENABLED) ++condition.active_nvlinks;
  }
  if (condition.active_nvlinks == 0) return;
  // The first field is the common speed of all links, and the second field is the speed of the first link. A GPU
  // reports one of the two fields.
  for (const unsigned int id :
       {NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, NVML_FI_DEV_NVLINK_GET_SPEED}) {
    NvmlFields<1> field;
    field[0].fieldId = id;
    if (nvml.Call<decltype(nvmlDeviceGetFieldValues)>("nvmlDeviceGetFieldValues", gpu, field.kCount,
                                                      field.data()) == NVML_SUCCESS &&
        field[0].nvmlReturn == NVML_SUCCESS) {
      condition.nvlink_gbs = std::max(condition.nvlink_gbs, field[0].value.uiVal * 1e-3);
    }
  }
}

}  // namespace

std::string UuidText(const std::array<unsigned char, 16>& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += "-";
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

std::vector<DriverGpu> GpusOfDriver() {
  const NvmlLibrary& nvml = TheNvml();
  unsigned int count = 0;
  nvml.Call<decltype(nvmlDeviceGetCount_v2)>("nvmlDeviceGetCount_v2", &count);
  std::vector<DriverGpu> gpus;
  for (unsigned int i = 0; i < count; ++i) {
    nvmlDevice_t handle = nullptr;
    std::array<char, NVML_DEVICE_UUID_V2_BUFFER_SIZE> uuid{};
    if (nvml.Call<decltype(nvmlDeviceGetHandleByIndex_v2)>("nvmlDeviceGetHandleByIndex_v2", i,
                                                           &handle) != NVML_SUCCESS ||
        nvml.Call<decltype(nvmlDeviceGetUUID)>("nvmlDeviceGetUUID", handle, uuid.data(),
                                               static_cast<unsigned int>(uuid.size())) !=
            NVML_SUCCESS) {
      continue;
    }
    DriverGpu gpu{.index = static_cast<int>(i), .uuid = uuid.data()};
    std::array<char, NVML_DEVICE_NAME_V2_BUFFER_SIZE> name{};
    if (nvml.Call<decltype(nvmlDeviceGetName)>("nvmlDeviceGetName", handle, name.data(),
                                               static_cast<unsigned int>(name.size())) ==
        NVML_SUCCESS) {
      gpu.name = name.data();
    }
    int major = 0;
    int minor = 0;
    if (nvml.Call<decltype(nvmlDeviceGetCudaComputeCapability)>(
            "nvmlDeviceGetCudaComputeCapability", handle, &major, &minor) == NVML_SUCCESS) {
      gpu.capability = 10 * major + minor;
    }
    gpus.push_back(gpu);
  }
  return gpus;
}

std::string NvmlDriver() {
  std::array<char, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE> version{};
  TheNvml().Call<decltype(nvmlSystemGetDriverVersion)>("nvmlSystemGetDriverVersion", version.data(),
                                                       static_cast<unsigned int>(version.size()));
  return version.data();
}

std::string WhyNoNvml() { return TheNvml().why_not(); }

std::optional<GpuCondition> ReadCondition(const std::array<unsigned char, 16>& uuid) {
  const NvmlLibrary& nvml = TheNvml();
  nvmlDevice_t gpu = nullptr;
  if (!nvml.is_ready() ||
      nvml.Call<decltype(nvmlDeviceGetHandleByUUID)>(
          "nvmlDeviceGetHandleByUUID", UuidText(uuid).c_str(), &gpu) != NVML_SUCCESS) {
    return std::nullopt;
  }
  GpuCondition condition;
  constexpr double kGib = 1 << 30;
  nvmlMemory_t memory{};
  if (nvml.Call<decltype(nvmlDeviceGetMemoryInfo)>("nvmlDeviceGetMemoryInfo", gpu, &memory) ==
      NVML_SUCCESS) {
    condition.used_gib = static_cast<double>(memory.used) / kGib;
    condition.total_gib = static_cast<double>(memory.total) / kGib;
  }
  unsigned int number = 0;
  if (nvml.Call<decltype(nvmlDeviceGetTemperature)>(
          "nvmlDeviceGetTemperature", gpu, NVML_TEMPERATURE_GPU, &number) == NVML_SUCCESS) {
    condition.celsius = static_cast<int>(number);
  }
  unsigned long long reasons = 0;
  // This is the older name of nvmlDeviceGetCurrentClocksEventReasons. Older drivers know the function only by this
  // name.
  if (nvml.Call<decltype(nvmlDeviceGetCurrentClocksThrottleReasons)>(
          "nvmlDeviceGetCurrentClocksThrottleReasons", gpu, &reasons) == NVML_SUCCESS) {
    condition.slowed_by = ReasonText(reasons);
  }
  unsigned long long errors = 0;
  if (nvml.Call<decltype(nvmlDeviceGetTotalEccErrors)>(
          "nvmlDeviceGetTotalEccErrors", gpu, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC,
          &errors) == NVML_SUCCESS) {
    condition.ecc_errors = errors;
  }
  const auto read = [&](const char* name, int& to) {
    if (nvml.Call<decltype(nvmlDeviceGetCurrPcieLinkWidth)>(name, gpu, &number) == NVML_SUCCESS) {
      to = static_cast<int>(number);
    }
  };
  read("nvmlDeviceGetCurrPcieLinkGeneration", condition.pcie_generation);
  read("nvmlDeviceGetCurrPcieLinkWidth", condition.pcie_lanes);
  read("nvmlDeviceGetMaxPcieLinkGeneration", condition.most_pcie_generation);
  read("nvmlDeviceGetMaxPcieLinkWidth", condition.most_pcie_lanes);
  ReadLinks(nvml, gpu, condition);
  return condition;
}

double PcieGbs(int generation, int lanes) {
  // The GB/s of one lane by generation, without the overhead of the line code, which is 8b/10b up to generation 2 and
  // 128b/130b from generation 3 on.
  constexpr double kLane[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
  return generation < 1 || generation > 6 ? 0 : kLane[generation] * lanes;
}

}  // namespace lockstep
