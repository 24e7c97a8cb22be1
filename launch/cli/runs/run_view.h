// RunView(): makes the text with which `lockstep watch RUN` shows a run.
#pragma once

#include <string>

#include "observe/history/run_history.h"

namespace lockstep {

// Returns a table with the run's state, progress, losses, metrics and speed, the causes of lost time, the load of the
// machine, and the run's last warnings. A row is left out if the log does not have its figures. `now` is Unix time in
// seconds.
std::string RunView(const RunHistory& run, double now);

}  // namespace lockstep
