// Writes a Chrome trace (for chrome://tracing or ui.perfetto.dev), which shows when the host and the device executed
// which operations.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>

#include "base/files/output_target.h"
#include "observe/profile/trace_places.h"

namespace lockstep {

// Calls `act`, waits for the work that `act` enqueued, and writes the operations and kernels of `act` to `target`. The
// trace is compressed if `path`, the path of `target`, ends in .gz. `graphs` returns the nodes of the CUDA graphs that
// `act` may have run. Throws Error (kCheckpoint) if the trace cannot be written, and any exception of `act`.
void Trace(OutputTarget& target, const std::string& path, at::Device device,
           const std::function<void()>& act, const std::function<NodesOfGraphs()>& graphs);

}  // namespace lockstep
