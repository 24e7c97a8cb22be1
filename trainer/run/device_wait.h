// WaitForDevice(): waits until the device has done all work of the current stream.
#pragma once

#include <c10/core/Device.h>

namespace lockstep {

// Waits for the current stream of `device`. Does nothing on a CPU. Throws c10::Error if a kernel has failed.
void WaitForDevice(at::Device device);

}  // namespace lockstep
