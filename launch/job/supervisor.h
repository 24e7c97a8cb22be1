// Supervisor: the process that a user started, while the job that it started runs.
//
// Promise: whatever reaches this process ends the job in the way that loses least, and the job ends when this
// process does.
//
//   SIGUSR2, SIGTERM, SIGHUP   the job is asked to stop (SIGUSR2): its state is committed; status 75
//   SIGINT (Ctrl-C)            likewise; status 130
//   SIGTERM or SIGINT when one of them has come before, these and SIGHUP before there is a state to lose, SIGQUIT
//                              the job is ended at once; status 128 + the signal; once more, and it is killed
//   SIGUSR1                    is passed on
//
// How: these signals are blocked from the constructor on and taken one after the other, so none is lost. mpirun is
// in a process group of its own, where the terminal's Ctrl-C, which it would end its ranks for, does not reach it. A
// signal in mpirun's first moments would kill it, or those ranks that have no handler yet: SIGUSR2 waits until
// the job holds its run folder's lock, which its rank 0 takes after all ranks have met.
//
// what can fail -> what the caller sees -> the test that shows it (tests/endings_test.py)
//   the job's program cannot be started -> Error (kUsage) -> launch/machine/child_process_test.cc
//   mpirun waits for a machine that is gone -> it is killed; End.error, and kPeer -> tests/network_test.py
//   mpirun is killed -> End.error, and kPeer -> tests/fault_test.py, test_mpirun_is_killed
//   a signal killed a rank -> kPeer -> tests/fault_test.py, test_a_rank_that_is_killed
#pragma once

#include <signal.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/machine/child_process.h"

namespace lockstep {

class Supervisor {
 public:
  Supervisor();
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  struct End {
    int status = 0;
    std::string error;         // what the job itself could not say
    bool by_user = false;      // its user wanted it to end
    bool rank_killed = false;  // by a signal
  };

  struct Program {
    std::vector<std::string> command;
    std::string name;     // as its user knows it
    int end_at_once = 0;  // the signal that has it end the job
    // Whether its rank 0 holds what it trains in, for jobs on several machines; mpirun waits for one that does not
    // answer until TCP gives up, and is killed some time after that rank has ended.
    std::function<bool()> is_held{};
  };

  // Runs a job to its end. `can_stop`: whether it has come so far that it stops in order when it is asked to. Throws
  // Error (kUsage).
  End Run(const Program& program, const std::function<bool()>& can_stop);

  // Lets so many seconds pass; the end where the user wants nothing more to come.
  std::optional<End> Pause(double seconds);

 private:
  void OnSignal(int signal, bool can_stop);
  int StatusOf(const ChildProcess::End& end) const;

  sigset_t taken_;
  sigset_t before_;
  bool asked_ = false;        // to stop
  bool interrupted_ = false;  // ... by Ctrl-C
  int demands_ = 0;           // SIGTERM and SIGINT that came
  int ended_by_ = 0;          // the signal that the job is to be ended at once for
  int ends_ = 0;              // how often that was wanted
};

// What a job's program exited with, as the job's status: kPeer where a signal killed a rank, for which mpirun has a
// status of its own.
int JobStatus(int code);

}  // namespace lockstep
