// Supervisor: starts a job as a child of the process that the user started, and waits until the job ends.
//
// Promise: every signal to this process, except SIGUSR1, ends the job in the way that loses the least work. If this
// process ends, the job ends, too.
//
//   signal                     what the supervisor does, and its exit status
//   SIGUSR2, SIGTERM, SIGHUP   sends the job SIGUSR2, which asks the job to save its state and stop; status 75
//   SIGINT (Ctrl-C)            the same; status 130
//   SIGTERM or SIGINT, if a SIGTERM or SIGINT has come before
//                              ends the job at once; status 128 + the signal
//   SIGQUIT                    ends the job at once; status 128 + the signal
//   SIGUSR1                    sends the job SIGUSR1
// If the job is to end at once, and another such signal comes or the job has not ended five seconds later, the
// supervisor kills the job. If SIGTERM, SIGHUP or SIGINT asked a job to stop, and the job does not begin to train
// within five seconds, the supervisor ends the job at once. (docs/design.md, 'Starting and stopping', has the table.)
//
// How: the constructor blocks these signals, and the supervisor then takes one signal after the other, so no signal is
// lost. mpirun runs in a process group of its own. The terminal's Ctrl-C therefore does not reach mpirun, which would
// end its ranks. A signal that reached mpirun just after its start would kill mpirun, or the ranks that have no handler
// yet. The supervisor therefore holds SIGUSR2 back until rank 0 says that all ranks have met (launch/job/sign.h).
//
// what can fail -> what the caller sees -> the test that shows it (tests/endings_test.py)
//   the job's program cannot be started -> Error (kUsage) -> launch/machine/child_process_test.cc
//   mpirun waits for a machine that is gone -> it is killed; End.error, and kPeer -> tests/network_test.py
//   mpirun is killed -> End.error, and kPeer -> tests/fault_test.py, test_mpirun_is_killed
//   a signal killed a rank -> kPeer -> tests/fault_test.py, test_a_rank_that_is_killed
//   mpirun ends before the ranks have met, or with a status that no rank has, or well while no rank has ended well
//     -> End.error with what it said, and kPeer -> tests/launcher_test.py
#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/job/relay.h"
#include "launch/machine/child_process.h"

namespace lockstep {

class Supervisor {
 public:
  // The signals stay blocked when it is gone: what comes while the process ends must not end it otherwise.
  Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  struct End {
    int status = 0;
    std::string error;         // what the job itself could not say
    bool by_user = false;      // its user wanted it to end
    bool rank_killed = false;  // by a signal
    bool met = false;          // its ranks have
    int output_error = 0;      // errno, where standard output did not take all that it printed
  };

  struct Program {
    std::vector<std::string> command;
    std::string name;      // as its user knows it
    int end_at_once = 0;   // the signal that has it end the job
    bool launches = true;  // its ranks; false: it is the one rank itself
    // Whether its rank 0 holds what it trains in, for jobs on several machines; mpirun waits for one that does not
    // answer until TCP gives up, and is killed some time after that rank has ended.
    std::function<bool()> is_held{};
  };

  // Runs a job to its end. Throws Error (kUsage).
  End Run(const Program& program);

  // Lets so many seconds pass; the end where the user wants nothing more to come.
  std::optional<End> Pause(double seconds);

 private:
  using Clock = std::chrono::steady_clock;

  void OnSignal(int signal);
  void EndAtOnce(int signal);
  int StatusOf(const ChildProcess::End& end) const;
  std::string WhatIsWrong(const Program& program, const ChildProcess::End& end,
                          const Relay& relay) const;

  sigset_t taken_;
  bool asked_ = false;        // to stop
  bool interrupted_ = false;  // ... by Ctrl-C
  int demands_ = 0;           // SIGTERM and SIGINT that came
  int patient_for_ = 0;       // the first signal but SIGUSR2 that came
  Clock::time_point patient_until_;
  int ended_by_ = 0;             // the signal that the job is to be ended at once for
  int ends_ = 0;                 // how often that was wanted
  Clock::time_point killed_at_;  // when what was to end at once is killed
};

// What a job's program exited with, as the job's status: kPeer where a signal killed a rank, for which mpirun has a
// status of its own.
int JobStatus(int code);

}  // namespace lockstep
