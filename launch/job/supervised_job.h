// Runs a command as a job of this process: starts the job, waits for its end, and starts it again after a failure.
//
// what can fail -> what the caller sees -> the test that shows it (tests/restart_test.py)
//   the job fails -> it is started again, as often as allowed -> test_a_job_goes_on_by_itself
//   it fails in one place -> it stays ended, and a line says so -> test_a_job_that_gets_no_further
//   its time is over, or its user has left a STOP -> likewise, with status 75 or 130
//     -> test_a_stop_that_came_before_a_failure, test_a_restart_when_the_time_is_over
#pragma once

#include <functional>
#include <limits>
#include <string>

#include "base/error.h"
#include "launch/job/sign.h"
#include "launch/job/supervisor.h"

namespace lockstep {

struct SupervisedJob {
  Supervisor::Program program;
  std::string run_dir;  // that it trains in; empty: it does not train
  double end_by_s = std::numeric_limits<double>::infinity();  // on the clock of base/clock.h
  int restarts = 0;                                           // that are allowed after failures
  bool prints_result = false;  // which is not to be lost without a word
  bool on_other_machines = false;
  // Why a job that trains came to nothing before its ranks had met, where none was killed.
  std::function<std::string()> why_no_start;
  // What to start after a failure, where that may be something else; nothing: there is nothing left to run on.
  std::function<std::optional<Supervisor::Program>()> what_is_left;
};

// Environment variables that a job finds: how often it was started again, and whether (kYes) one of the starts before
// had its run folder, so that what is for the first alone (--fresh) was done.
inline constexpr char kJobRestarts[] = "LOCKSTEP_RESTARTS";
inline constexpr char kJobHasBegun[] = "LOCKSTEP_HAS_BEGUN";
inline constexpr char kYes[] = "yes";

// Why a command fails whose result standard output did not take (errno).
Error LostOutput(int number);

// Runs it to its end and returns the exit status that its user gets. Throws Error (kUsage).
int RunSupervised(const SupervisedJob& job);

}  // namespace lockstep
