// UnusableGpus(): names the GPUs of this machine that Lockstep cannot compute on.
//
// Promise: each such GPU gets a finding of its own, which says why Lockstep cannot use that GPU. Devices that are no
// GPUs, such as the display of a server's management controller, are not named.
//
// The tests are in launch/machine/unusable_gpus_test.cc and tests/machine_test.py.
#pragma once

#include <string>
#include <vector>

#include "launch/machine/findings.h"
#include "observe/machine/nvml.h"

namespace lockstep {

inline constexpr char kPciDevices[] = "/sys/bus/pci/devices";

// Returns a finding for each GPU that Lockstep cannot compute on. `gpus` are the GPUs that the NVIDIA driver lists.
// `devices` is the folder in which the kernel lists the PCI devices (kPciDevices). `has_others` says whether the
// machine also has GPUs that Lockstep can use.
std::vector<Finding> UnusableGpus(const std::vector<DriverGpu>& gpus, const std::string& devices,
                                  bool has_others);

}  // namespace lockstep
