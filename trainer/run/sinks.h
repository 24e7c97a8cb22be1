// The list of all sinks of a run's events (observe/run_event.h).
#pragma once

#include "observe/run_event.h"
#include "trainer/config/schema/config.pb.h"
#include "trainer/run/run_folder.h"

namespace lockstep {

// Adds this rank's. `folder`: rank 0's, which they refer to, else null. `live`: standard output is a terminal.
void AddSinks(const config::Config& config, RunFolder* folder, bool live, int rank,
              RunEvents& events);

}  // namespace lockstep
