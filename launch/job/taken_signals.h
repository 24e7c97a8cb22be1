// TakenSignals: holds back signals, so that a command takes them one by one while it waits for a job.
//
// They stay held back when the object is destroyed, so that a signal that arrives while the process ends does not change
// how it ends. A signal that the process ignores (nohup) stays ignored.
#pragma once

#include <signal.h>

#include <initializer_list>

namespace lockstep {

class TakenSignals {
 public:
  // Holds back these signals and SIGCHLD, which says that a child has ended, even if whoever started this process ignored
  // SIGCHLD.
  explicit TakenSignals(std::initializer_list<int> signals);

  // Returns the next signal; 0 if none comes for so many seconds.
  int Wait(double seconds) const;

 private:
  sigset_t taken_;
};

}  // namespace lockstep
