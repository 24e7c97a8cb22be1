// Asks the NVIDIA driver about GPUs and their links, through NVIDIA's library NVML. The library is loaded when it is
// first needed, so the program also runs without a driver.
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

// Readings that show whether a GPU is healthy and how it is connected.
struct GpuCondition {
  double used_gib = 0;  // the memory that all processes use
  double total_gib = 0;
  int celsius = 0;
  // The reason for reduced clocks: "heat", "the power supply", "hardware protection"; empty: none.
  std::string slowed_by;
  uint64_t ecc_errors = 0;  // the number of uncorrected errors since the driver was loaded
  int pcie_generation = 0, pcie_lanes = 0;            // the present speed of the PCI Express link
  int most_pcie_generation = 0, most_pcie_lanes = 0;  // the maximum that GPU and slot support
  int nvlinks = 0, active_nvlinks = 0;
  double nvlink_gbs = 0;  // the bandwidth of one active link in one direction; 0: unknown
};

// Returns the condition of the GPU with this UUID, or nothing if NVML cannot be loaded or does not find the GPU.
std::optional<GpuCondition> ReadCondition(const std::array<unsigned char, 16>& uuid);

// A GPU with which the driver can communicate.
struct DriverGpu {
  int index = 0;
  std::string name{};
  std::string uuid{};
  int capability = 0;  // the compute capability, 75 for 7.5; 0: unknown
};

// Returns all GPUs with which the driver can communicate.
std::vector<DriverGpu> GpusOfDriver();

// Returns the driver's version, for example "580.95.05"; empty if there is no driver or if it does not report its
// version.
std::string NvmlDriver();

// Returns in words why NVML cannot be loaded; an empty text if it can be loaded.
std::string WhyNoNvml();

// Returns the UUID as text in NVML's form, for example "GPU-01234567-89ab-...".
std::string UuidText(const std::array<unsigned char, 16>& uuid);

// Returns the maximum bandwidth in one direction, in GB/s, of PCI Express of `generation` with `lanes` lanes; 0 if the
// generation is not known.
double PcieGbs(int generation, int lanes);

}  // namespace lockstep
