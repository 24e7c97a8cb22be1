// StopSignals: what the signals that this process gets ask its run for.
//
//   SIGUSR2        stop after a step, to go on another time (from before the ranks have met)
//   SIGTERM        the same, while the run trains; so does SIGHUP, of a terminal that is closed
//   SIGINT         the same as its user's wish, while the run trains; the second ends the process
// Before a run trains these three end the process, as ever.
//
// Where a watchdog takes SIGTERM (comm/watch/watchdog.h) it asks TakeTerm().
#pragma once

#include "trainer/run/trainer.h"

namespace lockstep {

// One in a process, for good: what comes while it ends must not end it otherwise.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // What was asked for so far. From the first call on the run trains.
  StopRequest Asked();

  // False: SIGTERM is to end the process. From any thread.
  static bool TakeTerm();
};

}  // namespace lockstep
