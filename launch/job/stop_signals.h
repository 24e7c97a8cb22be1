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

// One in a process, for good: what comes while it ends must not end it otherwise.
class StopSignals {
 public:
  // `is_rank`: others end it if need be.
  explicit StopSignals(bool is_rank);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // What was asked for so far. From the first call on the run trains.
  StopRequest Asked();

  // False: SIGTERM is to end the process. From any thread.
  static bool TakeTerm();
};

}  // namespace lockstep
