// StopSignals: handles the signals that ask this process to stop its run, and says how the run must end.
//
//   SIGUSR2, SIGTERM, SIGHUP   stop after a step; a scheduler may start the run again (status 75)
//   SIGINT                     stop after a step; the user wanted the run to end (status 130)
// A second SIGTERM or SIGINT ends the process. A process that is not a rank also ends if a signal other than SIGUSR2
// asked it to stop and the process does not begin to train within five seconds. (docs/design.md, 'Starting and
// stopping', has the table.)
//
// In a rank the watchdog handles SIGTERM (comm/watch/watchdog.h) and calls TakeTerm(), because SIGTERM does not always
// ask a rank to stop its run: mpirun also sends it to end ranks that would otherwise wait for a dead rank.
#pragma once

#include "trainer/run/trainer.h"

namespace lockstep {

// A process makes one object of this class. The object's signal handlers stay installed until the process ends, so that
// a signal that arrives at the very end does not change the exit status.
class StopSignals {
 public:
  // Installs the signal handlers. `is_rank` says whether this process is a rank. If a rank does not stop, another
  // process (mpirun or the supervisor) ends the rank. A process that is no rank sets a timer that ends the process
  // itself.
  explicit StopSignals(bool is_rank);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns how the signals so far have asked the run to stop. From the first call on, the run counts as training.
  StopRequest Asked();

  // If the run trains, asks the run to stop and returns true; otherwise returns false. The watchdog calls this function
  // when SIGTERM has come, and lets SIGTERM end the process if the function returns false. Any thread may call it.
  static bool TakeTerm();
};

}  // namespace lockstep
