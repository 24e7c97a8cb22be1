// Writes a Chrome trace (for chrome://tracing or ui.perfetto.dev), which shows what the host and the device did, and
// when.
#pragma once

#include <c10/core/Device.h>

#include <functional>

#include "base/files/output_target.h"

namespace lockstep {

// Calls `act`, waits for the work that it enqueued, and writes its operations and kernels to `target`. Throws Error
// (kCheckpoint) if they cannot be written, and any exception of `act`.
void Trace(OutputTarget& target, at::Device device, const std::function<void()>& act);

}  // namespace lockstep
