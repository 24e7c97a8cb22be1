// UnusableGpus(): names the GPUs of this machine that Lockstep cannot compute on.
//
// Promise: each of them is a finding of its own, which says why. Devices that are no GPUs, such as the display of a
// server's management controller, are not named.
//
// (launch/machine/unusable_gpus_test.cc; tests/machine_test.py)
#pragma once

#include <string>
#include <vector>

#include "launch/machine/findings.h"
#include "observe/machine/nvml.h"

namespace lockstep {

inline constexpr char kPciDevices[] = "/sys/bus/pci/devices";

// `gpus`: the driver's. `devices`: where the kernel shows what is on PCI Express (kPciDevices). `has_others`: there are
// GPUs that can be used, so that the machine trains on them.
std::vector<Finding> UnusableGpus(const std::vector<DriverGpu>& gpus, const std::string& devices,
                                  bool has_others);

}  // namespace lockstep
