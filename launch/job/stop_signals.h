// StopSignals: handles the signals that ask this process to stop its run, and says how the run must end.
//
//   SIGUSR2, SIGTERM, SIGHUP   stop after a step; a scheduler may start the run again (status 75)
//   SIGINT                     stop after a step; the user wanted the run to end (status 130)
// A second SIGTERM or SIGINT ends the process. A process that is not a rank also ends if a signal other than SIGUSR2
// asked it to stop and the process does not begin to train within five seconds. (docs/design.md, 'Starting and
// stopping', has the table.)
//
// In a rank the watchdog handles SIGTERM (comm/watch/watchdog.h) and calls TakeTerm(), because mpirun also sends
// SIGTERM to end ranks that would otherwise wait for a dead rank.
#pragma once

#include "trainer/run/trainer.h"

namespace lockstep {

// A process makes one object. Its signal handlers stay installed until the process ends, so that a signal that arrives
// at the very end does not change the exit status.
class StopSignals {
 public:
  // `is_rank` says whether this process is a rank. If a rank does not stop, another process ends it; a process that is
  // no rank sets a timer that ends it.
  explicit StopSignals(bool is_rank);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns what the signals have asked for so far. From the first call on the run counts as training.
  StopRequest Asked();

  // The watchdog calls it when SIGTERM has come. If the run trains, asks the run to stop and returns true. Otherwise
  // returns false, and the watchdog lets SIGTERM end the process. Any thread may call it.
  static bool TakeTerm();
};

}  // namespace lockstep
