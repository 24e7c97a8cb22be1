// RunView: the text with which `lockstep watch RUN` shows a run.
#pragma once

#include <string>

#include "observe/history/run_history.h"

namespace lockstep {

// Returns a table of the run: its state, how far it is, its losses and metrics, its speed, where its seconds went, what
// the machine does, and its last warnings. A row is missing if the log does not have its figures. `now` is Unix time in
// seconds.
std::string RunView(const RunHistory& run, double now);

}  // namespace lockstep
