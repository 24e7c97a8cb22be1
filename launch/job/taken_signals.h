// TakenSignals: blocks signals, so that a command can receive the signals one by one while it waits for a job.
//
// The signals stay blocked when the object is destroyed, so that a signal that arrives while the process ends does not
// change the exit status. A signal that the process ignores (nohup) stays ignored.
#pragma once

#include <signal.h>

#include <initializer_list>

namespace lockstep {

class TakenSignals {
 public:
  // Blocks `signals` and SIGCHLD, which says that a child process has ended. SIGCHLD is received even if this process
  // was started with SIGCHLD ignored.
  explicit TakenSignals(std::initializer_list<int> signals);

  // Waits for the next signal and returns its number; 0 if no signal comes within `seconds` seconds.
  int Wait(double seconds) const;

 private:
  sigset_t taken_;
};

}  // namespace lockstep
