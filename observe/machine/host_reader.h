// HostReader: reads how busy the machine's cores are and how much memory is in use. If this process runs in a container
// with a memory limit, HostReader reads the container's memory.
//
// Promise: a figure that cannot be read is 0, and no error is thrown. (observe/machine/host_reader_test.cc)
#pragma once

#include <cstdint>
#include <string>

#include "observe/machine/machine_reading.h"

namespace lockstep {

// Returns the resident memory of this process in bytes; 0 if the size cannot be read.
int64_t ProcessMemory(const std::string& proc = "/proc");

class HostReader {
 public:
  // Begins to measure the use of the cores for the first reading. `proc` and `cgroups` are the folders in which the
  // kernel shows its figures.
  explicit HostReader(std::string proc = "/proc", std::string cgroups = "/sys/fs/cgroup");

  // Returns the present figures. The use of the cores is measured since the previous reading.
  HostReading Read();

 private:
  // The clock ticks of all cores together since the machine started, and the number of cores.
  struct CpuTime {
    double busy = 0;
    double all = 0;
    int cores = 0;
  };

  CpuTime ReadCpuTime() const;

  std::string proc_;
  std::string cgroups_;
  CpuTime last_;
};

}  // namespace lockstep
