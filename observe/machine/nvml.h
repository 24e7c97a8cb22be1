// Nvml: asks the NVIDIA driver about GPUs and their links, through NVIDIA's library NVML. The library is loaded when it
// is first needed, so the program also runs without a driver.
//
// If a driver or a container does not report a value, the value is missing; a missing value is not an error.
// (launch/machine/driver_test.cc; tests/doctor_test.py on GPUs)
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// What tells whether a GPU is well and how it is attached.
struct GpuCondition {
  double used_gib = 0;  // by all processes
  double total_gib = 0;
  int celsius = 0;
  std::string slowed_by;    // "heat", "the power supply", "hardware protection"; empty: nothing
  uint64_t ecc_errors = 0;  // uncorrected, since the driver was loaded
  int pcie_generation = 0, pcie_lanes = 0;            // now
  int most_pcie_generation = 0, most_pcie_lanes = 0;  // of GPU and slot
  int nvlinks = 0, active_nvlinks = 0;
  double nvlink_gbs = 0;  // of one active link, one way; 0: not known
};

// Of the GPU with that UUID; nothing: NVML cannot be had.
std::optional<GpuCondition> ReadCondition(const std::array<unsigned char, 16>& uuid);

// A GPU that the driver can speak to.
struct DriverGpu {
  int index = 0;
  std::string name{};
  std::string uuid{};
  int capability = 0;  // its compute capability, 75 of 7.5; 0: not known
};
std::vector<DriverGpu> GpusOfDriver();

// Its version, "580.95.05"; empty: there is none, or it does not say.
std::string NvmlDriver();

// Why NVML cannot be had, in words; empty: it can.
std::string WhyNoNvml();

// As NVML writes it: "GPU-01234567-89ab-...".
std::string UuidText(const std::array<unsigned char, 16>& uuid);

// What PCI Express of that generation carries one way, at most, in GB/s.
double PcieGbs(int generation, int lanes);

}  // namespace lockstep
