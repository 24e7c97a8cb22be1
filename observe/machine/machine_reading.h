// MachineReading: holds what one machine's GPUs and host were doing at one moment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// A process that uses a GPU.
struct GpuProcess {
  int pid = 0;
  std::optional<int64_t> memory{};  // the bytes of the GPU's memory that the process uses
};

// The state of a GPU at one moment. A value that the driver does not report is missing.
struct GpuReading {
  int index = 0;  // the GPU's number among the machine's GPUs, as NVML counts them
  std::string name;
  std::string uuid;
  // The fraction of NVML's last sample period in which a kernel ran (use), and in which the GPU's memory was read or
  // written (memory_use).
  std::optional<double> use;
  std::optional<double> memory_use;
  std::optional<int64_t> memory_used;   // in bytes, by all processes
  std::optional<int64_t> memory_free;   // in bytes, without memory that the driver reserves
  std::optional<int64_t> memory_total;  // in bytes
  std::optional<int> rank;              // the job's rank that computes on this GPU
  // The bytes of the GPU's memory that the process of `rank` uses.
  std::optional<int64_t> process_memory;
  std::optional<double> power_w;
  std::optional<double> power_limit_w;
  std::optional<double> energy_j;  // the energy used since the driver was loaded
  std::optional<int> temperature_c;
  std::optional<int> sm_clock_mhz;
  std::optional<int> sm_clock_limit_mhz;
  std::optional<int> memory_clock_mhz;
  std::optional<int> memory_clock_limit_mhz;
  std::optional<uint64_t> throttle_reasons;  // NVML's bits, which ThrottleWords() puts in words
  std::optional<int> xid_errors;             // the code of the last XID error; 0: none
  std::optional<double> pcie_sent_bytes_per_s;
  std::optional<double> pcie_received_bytes_per_s;
  std::optional<double> nvlink_sent_bytes_per_s;
  std::optional<double> nvlink_received_bytes_per_s;
  std::vector<GpuProcess> processes{};  // all processes that use the GPU
};

struct HostReading {
  double cpu_use = 0;  // the used fraction of all cores' time since the previous reading
  int cores = 0;
  int64_t memory_used = 0;     // in bytes, without pages of the page cache that the kernel can free
  int64_t memory_total = 0;    // in bytes; the machine's memory, or the cgroup's limit if less
  int64_t process_memory = 0;  // the resident memory of this process, in bytes
  int64_t process_anonymous = 0;  // the part of process_memory that belongs to no file
};

struct MachineReading {
  double time = 0;   // the Unix time of the reading, in seconds
  std::string host;  // the machine's name
  HostReading host_reading;
  std::vector<GpuReading> gpus;  // the GPUs that were read: all, or those that this job's ranks use
};

// Returns the reasons for which a GPU's clocks are reduced ("power limit", "heat", ...), from NVML's bits. NVML's bit
// for an idle GPU is left out.
std::vector<std::string> ThrottleWords(uint64_t reasons);

// Returns whether NVML's bits contain heat, the power supply or another fault of the hardware. The power limit is not a
// fault, because a GPU that is well used reaches its power limit.
bool IsSlowedByFault(uint64_t reasons);

}  // namespace lockstep
