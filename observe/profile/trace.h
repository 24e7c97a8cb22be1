// Writes a Chrome trace (for chrome://tracing or ui.perfetto.dev), which shows what the host and the device did, and
// when.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>

#include "base/files/output_target.h"
#include "observe/profile/trace_places.h"

namespace lockstep {

// Calls `act`, waits for the work that it enqueued, and writes its operations and kernels to `target`, compressed if
// its path, `path`, ends in .gz. `graphs` returns the CUDA graphs that `act` may have run. Throws Error (kCheckpoint)
// if they cannot be written, and any exception of `act`.
void Trace(OutputTarget& target, const std::string& path, at::Device device,
           const std::function<void()>& act, const std::function<NodesOfGraphs()>& graphs);

}  // namespace lockstep
