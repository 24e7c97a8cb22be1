// Asks the NVIDIA driver for its version and for this machine's GPUs, and says why a driver does not work.
//
// what can fail -> what the caller sees -> the test that shows it (launch/machine/driver_test.cc)
//   the driver is too old for the CUDA that this program has -> Error (kUsage) -> Driver.TooOld
//   the driver is installed and does not work -> Error (kUsage) with CUDA's reason -> Driver.DoesNotWork
#pragma once

#include <sched.h>

#include <array>
#include <string>

namespace lockstep {

// Returns the number of GPUs that this process may use; 0 if there is no driver. Throws Error (kUsage).
int VisibleGpus();

// Returns the UUID of GPU number `gpu`. Throws Error (kUsage).
std::array<unsigned char, 16> UuidOf(int gpu);

// Returns the cores of the NUMA node to which GPU number `gpu` is attached; empty if it is unknown.
cpu_set_t CoresBeside(int gpu);

// Returns the driver's version, such as "535.104.05", from the content of /proc/driver/nvidia/version; empty if it is
// unknown.
std::string DriverVersion(const std::string& version_file);

// Returns the version of this machine's driver; empty if there is no driver or its version is unknown.
std::string InstalledDriver();

// Throws Error (kUsage) that says why the driver does not work, after CUDA returned the error `code` when it counted
// the GPUs. `version_file` is the content of /proc/driver/nvidia/version, empty if there is no driver. Returns without
// an error if there is no driver or the driver has no GPU.
void RequireWorkingDriver(int code, const std::string& version_file);

}  // namespace lockstep
