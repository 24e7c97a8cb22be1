// MachineReading: what one machine's GPUs and host were doing at one moment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// A process that uses a GPU.
struct GpuProcess {
  int pid = 0;
  std::optional<int64_t> memory{};  // bytes of the GPU's
};

// Each value that the driver does not tell is left out.
struct GpuReading {
  int index = 0;  // as NVML counts the machine's GPUs
  std::string name;
  std::string uuid;
  std::optional<double> use;              // share of the last period in which a kernel ran
  std::optional<double> memory_use;       // ... in which memory was read or written
  std::optional<int64_t> memory_used;     // bytes
  std::optional<int64_t> memory_total;    // bytes
  std::optional<int64_t> process_memory;  // bytes of the job's process that computes on it
  std::optional<double> power_w;
  std::optional<double> power_limit_w;
  std::optional<double> energy_j;  // since the driver was loaded
  std::optional<int> temperature_c;
  std::optional<int> sm_clock_mhz;
  std::optional<int> sm_clock_limit_mhz;
  std::optional<int> memory_clock_mhz;
  std::optional<int> memory_clock_limit_mhz;
  std::optional<uint64_t> throttle_reasons;  // NVML's bits; ThrottleWords() names them
  std::optional<int> xid_errors;             // the last one's number; 0: none so far
  std::optional<double> pcie_sent_bytes_per_s;
  std::optional<double> pcie_received_bytes_per_s;
  std::optional<double> nvlink_sent_bytes_per_s;
  std::optional<double> nvlink_received_bytes_per_s;
  std::vector<GpuProcess> processes{};  // all that use it
};

struct HostReading {
  double cpu_use = 0;  // share of all its cores since the reading before
  int cores = 0;
  int64_t memory_used = 0;        // bytes, without what the page cache can give back
  int64_t memory_total = 0;       // bytes; of a cgroup's limit where that is less
  int64_t process_memory = 0;     // bytes of this process that are resident
  int64_t process_anonymous = 0;  // bytes of them that belong to no file
};

struct MachineReading {
  double time = 0;   // Unix time
  std::string host;  // its name
  HostReading host_reading;
  std::vector<GpuReading> gpus;  // that this job's ranks use
};

// "power limit", "heat", ...: what keeps a GPU's clocks down, of NVML's bits. An idle GPU is kept down by nothing.
std::vector<std::string> ThrottleWords(uint64_t reasons);

// Returns whether heat, the power supply or another fault of the hardware is among NVML's bits. The power limit is none:
// a GPU that is well used works at it.
bool IsSlowedByFault(uint64_t reasons);

}  // namespace lockstep
