// What host and device did, when, as a Chrome trace (chrome://tracing, ui.perfetto.dev).
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>

namespace lockstep {

// Calls `act`, waits for what it queued, and writes its operations and kernels to `path`.
void Trace(const std::string& path, at::Device device, const std::function<void()>& act);

}  // namespace lockstep
