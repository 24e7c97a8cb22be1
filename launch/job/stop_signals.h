// StopSignals: receives this process's signals and says what they ask the run to do.
//
//   SIGUSR2, SIGTERM, SIGHUP   stop after a step; the run may be started again by itself (status 75)
//   SIGINT                     stop after a step; the user wanted the run to end (status 130)
// A second SIGTERM or SIGINT ends the process. A process that is not a rank also ends if a signal other than SIGUSR2
// asked it to stop and the process does not begin to train within five seconds. (docs/design.md, 'Starting and
// stopping', has the table.)
//
// In a rank the watchdog handles SIGTERM (comm/watch/watchdog.h) and asks TakeTerm(), because mpirun sends SIGTERM to
// end ranks that would wait for a dead one.
#pragma once

#include "trainer/run/trainer.h"

namespace lockstep {

// A process makes one object, which stays in force until the process ends, so that a signal that arrives at the very
// end does not change how the process ends.
class StopSignals {
 public:
  // `is_rank` says that this process is a rank, so another process ends it if it does not stop.
  explicit StopSignals(bool is_rank);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns what the signals have asked for so far. From the first call on the run counts as training.
  StopRequest Asked();

  // The watchdog calls it when SIGTERM has come. If the run trains, makes the run stop and returns true. Otherwise
  // returns false, and the watchdog lets SIGTERM end the process. Any thread may call it.
  static bool TakeTerm();
};

}  // namespace lockstep
