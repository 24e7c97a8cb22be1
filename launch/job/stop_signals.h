// StopSignals: what the signals that this process gets ask its run for.
//
//   SIGUSR2, SIGTERM, SIGHUP   stop after a step, to go on another time
//   SIGINT                     the same as its user's wish
//   SIGTERM or SIGINT when one of them has come before end the process
// A process that is no rank, was asked by another signal than SIGUSR2 and does not come to train within five seconds
// ends. (docs/design.md, 'Starting and stopping', has the table.)
//
// A rank's SIGTERM its watchdog takes (comm/watch/watchdog.h), which asks TakeTerm(): mpirun sends it to end ranks that
// would wait for one that has died.
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
