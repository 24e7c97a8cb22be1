// The list of all sinks of a run's events (observe/run_event.h).
#pragma once

#include "observe/run_event.h"
#include "trainer/run/run_folder.h"

namespace lockstep {

// Adds this rank's. `folder`: rank 0's, which they refer to, else null. `live`: standard output is a terminal.
void AddSinks(RunFolder* folder, bool live, int rank, RunEvents& events);

}  // namespace lockstep
