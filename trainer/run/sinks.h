// The list of all sinks of a run's events (observe/run_event.h).
#pragma once

#include <optional>
#include <vector>

#include "observe/machine/gpu_reader.h"
#include "observe/run_event.h"
#include "trainer/config/schema/observe.pb.h"
#include "trainer/run/run_folder.h"

namespace lockstep {

// Adds this rank's. `gpu_users`: as in TrainOptions. `folder`: rank 0's, which they refer to, else null. `live`:
// standard output is a terminal.
void AddSinks(const config::Observe& config, const std::optional<std::vector<GpuUser>>& gpu_users,
              RunFolder* folder, bool live, int rank, RunEvents& events);

}  // namespace lockstep
