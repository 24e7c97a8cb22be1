// Asks the NVIDIA driver for its version and for this machine's GPUs, and says why a driver does not work.
//
// what can fail -> what the caller sees -> the test that shows it (launch/machine/driver_test.cc)
//   the driver is too old for the CUDA that this program has -> Error (kUsage) -> Driver.TooOld
//   it is there and does not work -> Error (kUsage) with CUDA's reason -> Driver.DoesNotWork
#pragma once

#include <sched.h>

#include <array>
#include <string>

namespace lockstep {

// GPUs that this process may use; 0 where there is no driver. Throws Error (kUsage).
int VisibleGpus();

// Of the GPU of that number. Throws Error (kUsage).
std::array<unsigned char, 16> UuidOf(int gpu);

// The cores of the part of the machine (NUMA node) that the GPU of that number is attached to; none: it is not
// known.
cpu_set_t CoresBeside(int gpu);

// "535.104.05", from what /proc/driver/nvidia/version holds; empty: it is not known.
std::string DriverVersion(const std::string& version_file);

// Of this machine's; empty: there is none, or it is not known.
std::string InstalledDriver();

// Why there are no GPUs where counting them gave CUDA's error `code`. `version_file`: as above, empty where there is
// no driver. Throws Error (kUsage) unless there are none to be had.
void RequireWorkingDriver(int code, const std::string& version_file);

}  // namespace lockstep
