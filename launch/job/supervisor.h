// Supervisor: starts a job as a child of the process that the user started, and waits until the job ends.
//
// Promise: each signal in the following table, except SIGUSR1, ends the job in the way that loses the least work. The
// end of this process also ends the job.
//
//   signal                     what the supervisor does, and its exit status
//   SIGUSR2, SIGTERM, SIGHUP   sends the job SIGUSR2, which asks the job to save its state and stop; status 75
//   SIGINT (Ctrl-C)            the same; status 130
//   SIGTERM or SIGINT, if a SIGTERM or SIGINT has come before
//                              ends the job at once; status 128 + the signal
//   SIGQUIT                    ends the job at once; status 128 + the signal
//   SIGUSR1                    sends the job SIGUSR1
// After a signal that ends the job at once, the supervisor kills the job if a second signal of this kind comes, or if
// the job has not ended five seconds later. If SIGTERM, SIGHUP or SIGINT asked a job to stop, and the job does not
// begin to train within five seconds, the supervisor ends the job at once. (docs/design.md, 'Starting and stopping',
// has the table.)
//
// How: the constructor blocks these signals, and the supervisor then takes one signal after the other, so no signal is
// lost. mpirun runs in a process group of its own, because the terminal's Ctrl-C would otherwise reach mpirun, and
// mpirun would end its ranks. A signal that reached mpirun just after its start would kill mpirun, or the ranks that
// have no signal handler yet. The supervisor therefore does not send SIGUSR2 before rank 0 says that all ranks have met
// (launch/job/sign.h).
//
// what can fail -> what the caller sees -> the test that shows it (tests/endings_test.py)
//   the job's program cannot be started -> Error (kUsage) -> launch/machine/child_process_test.cc
//   mpirun waits for a machine that is gone -> mpirun is killed; End.error, and kPeer -> tests/network_test.py
//   mpirun has lost a machine, with whatever status it ends -> End.error with the machine, which mpirun or ssh names
//     (launch/job/over_ssh.h), if no rank has printed an error, and kPeer -> tests/network_test.py
//   mpirun is killed -> End.error, and kPeer -> tests/fault_test.py, test_mpirun_is_killed
//   a signal killed a rank -> kPeer -> tests/fault_test.py, test_a_rank_that_is_killed
//   mpirun ends before the ranks have met, or with a status that no rank ends with, or with status 0 although no rank
//     has given Sign::kLeaves -> End.error with mpirun's message, and kPeer -> tests/planted_test.py, cases launcher-*
#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/job/relay.h"
#include "launch/job/taken_signals.h"
#include "launch/machine/child_process.h"

namespace lockstep {

class Supervisor {
 public:
  Supervisor() = default;
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  struct End {
    int status = 0;
    std::string error;         // the error message for the user, if the job could not print one
    bool by_user = false;      // a signal to this process asked the job to end
    bool rank_killed = false;  // a signal killed a rank
    bool met = false;          // all ranks have met (Sign::kMet)
    // The errno of the first write of the job's output to standard output that failed; 0: none failed.
    int output_error = 0;
  };

  struct Program {
    std::vector<std::string> command;
    std::string name;     // the program's name in messages to the user
    int end_at_once = 0;  // the signal that makes the program end the job at once
    // True: the program (mpirun) starts the ranks; false: it is itself the only rank.
    bool launches = true;
    // Returns whether the job's rank 0 holds the lock of its run folder. This function is set only for jobs on several
    // machines. If a machine does not answer, mpirun waits until TCP gives up. The supervisor therefore kills mpirun if
    // mpirun still runs ten seconds after rank 0 has ended, or one if a rank gave no sign of life.
    std::function<bool()> is_held{};
  };

  // Runs a job to its end. Throws Error (kUsage).
  End Run(const Program& program);

  // Waits for `seconds` seconds before a restart. If a signal asks the job to end in the meantime, returns the End for
  // the user; otherwise returns nothing.
  std::optional<End> Pause(double seconds);

 private:
  using Clock = std::chrono::steady_clock;

  void OnSignal(int signal);
  void EndAtOnce(int signal);
  int StatusOf(const ChildProcess::End& end) const;
  std::string WhatIsWrong(const Program& program, const ChildProcess::End& end,
                          const Relay& relay) const;

  TakenSignals taken_{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
  bool asked_ = false;        // a signal has asked the job to stop
  bool interrupted_ = false;  // SIGINT (Ctrl-C) has asked for the stop
  int demands_ = 0;           // how many SIGTERM and SIGINT signals have come
  int patient_for_ = 0;       // the first signal except SIGUSR2 that asked for a stop; 0: none
  Clock::time_point patient_until_;
  int ended_by_ = 0;             // the signal for which the job must end at once
  int ends_ = 0;                 // how often a signal or a time limit made the job end at once
  Clock::time_point killed_at_;  // when the job is killed, if it has not ended by then
};

// Converts the exit status of a job's program to the job's exit status. If a signal killed a rank, the exit status of
// mpirun is above 128 (and not 130), and the job's status is kPeer.
int JobStatus(int code);

}  // namespace lockstep
