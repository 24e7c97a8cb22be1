// TrialRunner: trains a changed config for a few steps, in a process of its own, and returns what the log says.
//
// Promise: nothing stays behind. A trial writes into a scratch folder beside the run folder, which is removed after it;
// if this process is killed, the next trial removes it.
//
// what can fail -> what the caller sees -> the test that shows it (tests/tune_test.py)
//   the trial diverges -> Trial.failure has its error -> test_it_tells_what_it_does
//   data, a rank, a disk fail -> Error with the trial's own status and line -> test_a_trial_that_fails
//   Ctrl-C, SIGTERM -> the trial ends, and Trial.stopped says how -> test_an_interrupt_keeps_what_it_has
//   there is no place for the scratch folder -> Error (kUsage) -> test_wrong_inputs
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/job/taken_signals.h"
#include "observe/history/run_log.h"
#include "trainer/config/schema/config.pb.h"

namespace lockstep {

struct Trial {
  LoggedRun log;        // with all step lines
  double wall_s = 0;    // from the start of the process to its end
  std::string failure;  // why the training ended before its last step; empty: it did not
  std::optional<ExitStatus> stopped;  // the status that a signal to this process asks for
};

class TrialRunner {
 public:
  // `command` starts a training: the program and the options before `train`. The trials' files lie in `parent`, which
  // is made if it is missing. The signals that ask a command to stop are taken during a trial.
  TrialRunner(std::vector<std::string> command, const std::string& parent);

  // Trains `config`, without what its run tells others (observe, profile) and without checkpoints. Throws Error.
  Trial Run(config::Config config);

 private:
  std::vector<std::string> command_;
  std::string parent_;
  TakenSignals taken_{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR2};
};

}  // namespace lockstep
