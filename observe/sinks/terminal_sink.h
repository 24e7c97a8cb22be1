// TerminalSink: prints what the user sees while a run trains. On a terminal the sink redraws one line; elsewhere the
// sink prints plain lines. Warnings go to standard error.
#pragma once

#include <memory>

#include "observe/run_event.h"

namespace lockstep {

// Returns the sink of rank 0. `live` says whether standard output is a terminal on which one line may be redrawn.
std::unique_ptr<EventSink> NewTerminalSink(bool live);

// Returns the sink of a rank other than 0. The sink prints only this rank's bad samples and failed checkpoints.
std::unique_ptr<EventSink> NewRankWarningSink(int rank);

}  // namespace lockstep
