// TerminalSink: prints what the user sees while a run trains. On a terminal it redraws one line; elsewhere it prints
// plain lines. Warnings go to standard error.
#pragma once

#include <memory>

#include "observe/run_event.h"

namespace lockstep {

// Of rank 0. `live`: standard output is a terminal that one line may be redrawn on.
std::unique_ptr<EventSink> NewTerminalSink(bool live);

// Of the others: their own bad samples and failed checkpoints alone.
std::unique_ptr<EventSink> NewRankWarningSink(int rank);

}  // namespace lockstep
