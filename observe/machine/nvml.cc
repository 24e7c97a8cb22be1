#include "observe/machine/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <nvml.h>

#include <algorithm>
#include <string_view>

namespace lockstep {
namespace {

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    is_ready_ = Call<decltype(nvmlInit_v2)>("nvmlInit_v2") == NVML_SUCCESS;
  }

  bool is_ready() const { return is_ready_; }

  // Of the function of that name; NVML_ERROR_FUNCTION_NOT_FOUND where the driver has none.
  template <typename Function, typename... Args>
  nvmlReturn_t Call(const char* name, Args... args) const {
    auto* const function =
        library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
    return function == nullptr ? NVML_ERROR_FUNCTION_NOT_FOUND : function(args...);
  }

 private:
  void* library_;  // for as long as the process lives
  bool is_ready_ = false;
};

const Nvml& TheNvml() {
  static const Nvml nvml;
  return nvml;
}

std::string UuidText(const std::array<unsigned char, 16>& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += "-";
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

std::string ReasonText(unsigned long long reasons) {
  if ((reasons & nvmlClocksThrottleReasonHwPowerBrakeSlowdown) != 0) return "the power supply";
  if ((reasons &
       (nvmlClocksThrottleReasonHwThermalSlowdown | nvmlClocksEventReasonSwThermalSlowdown)) != 0) {
    return "heat";
  }
  if ((reasons & nvmlClocksThrottleReasonHwSlowdown) != 0) return "hardware protection";
  return "";
}

void ReadLinks(const Nvml& nvml, nvmlDevice_t gpu, GpuReadings& readings) {
  unsigned int links = NVML_NVLINK_MAX_LINKS;
  for (unsigned int link = 0; link < links; ++link) {
    nvmlEnableState_t state = NVML_FEATURE_DISABLED;
    if (nvml.Call<decltype(nvmlDeviceGetNvLinkState)>("nvmlDeviceGetNvLinkState", gpu, link,
                                                      &state) != NVML_SUCCESS) {
      continue;
    }
    ++readings.nvlinks;
    if (state == NVML_FEATURE_ENABLED) ++readings.active_nvlinks;
  }
  if (readings.active_nvlinks == 0) return;
  // Of all links, and of the first one: GPUs know either.
  for (const unsigned int id :
       {NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, NVML_FI_DEV_NVLINK_GET_SPEED}) {
    nvmlFieldValue_t field{};
    field.fieldId = id;
    if (nvml.Call<decltype(nvmlDeviceGetFieldValues)>("nvmlDeviceGetFieldValues", gpu, 1, &field) ==
            NVML_SUCCESS &&
        field.nvmlReturn == NVML_SUCCESS) {
      readings.nvlink_gbs = std::max(readings.nvlink_gbs, field.value.uiVal * 1e-3);
    }
  }
}

}  // namespace

std::vector<std::string> GpuUuids() {
  const Nvml& nvml = TheNvml();
  unsigned int count = 0;
  nvml.Call<decltype(nvmlDeviceGetCount_v2)>("nvmlDeviceGetCount_v2", &count);
  std::vector<std::string> uuids;
  for (unsigned int i = 0; i < count; ++i) {
    nvmlDevice_t gpu = nullptr;
    std::array<char, NVML_DEVICE_UUID_V2_BUFFER_SIZE> uuid{};
    if (nvml.Call<decltype(nvmlDeviceGetHandleByIndex_v2)>("nvmlDeviceGetHandleByIndex_v2", i,
                                                           &gpu) == NVML_SUCCESS &&
        nvml.Call<decltype(nvmlDeviceGetUUID)>("nvmlDeviceGetUUID", gpu, uuid.data(),
                                               static_cast<unsigned int>(uuid.size())) ==
            NVML_SUCCESS) {
      uuids.emplace_back(uuid.data());
    }
  }
  return uuids;
}

std::optional<GpuReadings> ReadGpu(const std::array<unsigned char, 16>& uuid) {
  const Nvml& nvml = TheNvml();
  nvmlDevice_t gpu = nullptr;
  if (!nvml.is_ready() ||
      nvml.Call<decltype(nvmlDeviceGetHandleByUUID)>(
          "nvmlDeviceGetHandleByUUID", UuidText(uuid).c_str(), &gpu) != NVML_SUCCESS) {
    return std::nullopt;
  }
  GpuReadings readings;
  constexpr double kGib = 1 << 30;
  nvmlMemory_t memory{};
  if (nvml.Call<decltype(nvmlDeviceGetMemoryInfo)>("nvmlDeviceGetMemoryInfo", gpu, &memory) ==
      NVML_SUCCESS) {
    readings.used_gib = static_cast<double>(memory.used) / kGib;
    readings.total_gib = static_cast<double>(memory.total) / kGib;
  }
  unsigned int number = 0;
  if (nvml.Call<decltype(nvmlDeviceGetTemperature)>(
          "nvmlDeviceGetTemperature", gpu, NVML_TEMPERATURE_GPU, &number) == NVML_SUCCESS) {
    readings.celsius = static_cast<int>(number);
  }
  unsigned long long reasons = 0;
  // The name of nvmlDeviceGetCurrentClocksEventReasons that older drivers have, too.
  if (nvml.Call<decltype(nvmlDeviceGetCurrentClocksThrottleReasons)>(
          "nvmlDeviceGetCurrentClocksThrottleReasons", gpu, &reasons) == NVML_SUCCESS) {
    readings.slowed_by = ReasonText(reasons);
  }
  unsigned long long errors = 0;
  if (nvml.Call<decltype(nvmlDeviceGetTotalEccErrors)>(
          "nvmlDeviceGetTotalEccErrors", gpu, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC,
          &errors) == NVML_SUCCESS) {
    readings.ecc_errors = errors;
  }
  const auto read = [&](const char* name, int& to) {
    if (nvml.Call<decltype(nvmlDeviceGetCurrPcieLinkWidth)>(name, gpu, &number) == NVML_SUCCESS) {
      to = static_cast<int>(number);
    }
  };
  read("nvmlDeviceGetCurrPcieLinkGeneration", readings.pcie_generation);
  read("nvmlDeviceGetCurrPcieLinkWidth", readings.pcie_lanes);
  read("nvmlDeviceGetMaxPcieLinkGeneration", readings.most_pcie_generation);
  read("nvmlDeviceGetMaxPcieLinkWidth", readings.most_pcie_lanes);
  ReadLinks(nvml, gpu, readings);
  return readings;
}

double PcieGbs(int generation, int lanes) {
  // Of a lane, after its code: 8b/10b up to generation 2, 128b/130b from 3 on.
  constexpr double kLane[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
  return generation < 1 || generation > 6 ? 0 : kLane[generation] * lanes;
}

}  // namespace lockstep
