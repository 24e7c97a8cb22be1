// StopSignals: what the signals that this process gets ask its run to do.
//
//   SIGUSR2, SIGTERM, SIGHUP   stop after a step, to go on at another time
//   SIGINT                     the same, because its user wants it
//   SIGTERM or SIGINT ends the process if one of them has come before.
// A process that is not a rank also ends if a signal other than SIGUSR2 asked it to stop and it does not begin to
// train within five seconds. (docs/design.md, 'Starting and stopping', has the table.)
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
