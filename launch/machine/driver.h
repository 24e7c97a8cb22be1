// Asks the NVIDIA driver for its version and for this machine's GPUs, and says why a driver does not work.
//
// what can fail -> what the caller sees -> the test that shows it (launch/machine/driver_test.cc)
//   the driver is too old for the CUDA that this program has -> Error (kUsage) -> Driver.TooOld
//   the driver is installed but does not work -> Error (kUsage) with CUDA's reason -> Driver.DoesNotWork
#pragma once

#include <sched.h>

#include <array>
#include <string>

namespace lockstep {

// Returns the number of GPUs that this process may use; 0 if there is no driver. Throws Error (kUsage).
int VisibleGpus();

// Returns the UUID of GPU number `gpu`. Throws Error (kUsage) if the GPU cannot be used.
std::array<unsigned char, 16> UuidOf(int gpu);

// Returns the cores of the NUMA node to which GPU number `gpu` is attached; an empty set if they are unknown.
cpu_set_t CoresBeside(int gpu);

// Returns the driver's version, such as "535.104.05", from `version_file`, the content of /proc/driver/nvidia/version;
// an empty string if the content has no version.
std::string DriverVersion(const std::string& version_file);

// Returns the version of this machine's driver; an empty string if there is no driver or its version is unknown.
std::string InstalledDriver();

// Checks the driver after cudaGetDeviceCount() returned the error `code`. `version_file` is the content of
// /proc/driver/nvidia/version; empty: there is no driver. Throws Error (kUsage), which says why the driver does not
// work. Returns without an error if there is no driver or if the driver has no GPU for this process.
void RequireWorkingDriver(int code, const std::string& version_file);

}  // namespace lockstep
