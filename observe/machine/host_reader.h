// HostReader: reads how busy the cores are and how much memory is in use, of this machine or of the container that this
// process runs in.
//
// Promise: what cannot be read is 0. Nothing is thrown for it. (observe/machine/host_reader_test.cc)
#pragma once

#include <cstdint>
#include <string>

#include "observe/machine/machine_reading.h"

namespace lockstep {

class HostReader {
 public:
  // `proc` and `cgroups`: where the kernel shows its figures. The cores' use counts from here on.
  explicit HostReader(std::string proc = "/proc", std::string cgroups = "/sys/fs/cgroup");

  HostReading Read();

 private:
  // In ticks since the machine began, of all cores together.
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
