// A command that runs as a job below this process, from its first start to its last.
//
// what can fail -> what the caller sees -> the test that shows it (tests/restart_test.py)
//   the job fails -> it is started again, as often as allowed -> test_a_job_goes_on_by_itself
//   it fails in one place -> it stays ended, and a line says so -> test_a_job_that_gets_no_further
#pragma once

#include <functional>
#include <string>

#include "launch/job/supervisor.h"

namespace lockstep {

struct SupervisedJob {
  Supervisor::Program program;
  std::string run_dir;  // that it trains in; empty: it does not train
  int restarts = 0;     // that are allowed after failures
  bool on_other_machines = false;
  // Why a job that trains came to nothing before its ranks had met, where none was killed.
  std::function<std::string()> why_no_start;
  // What to start after a failure, where that may be something else; nothing: there is nothing left to run on.
  std::function<std::optional<Supervisor::Program>()> what_is_left;
};

// Environment variables that a job finds: its name, which is no other's and which the run folder's lock has as
// soon as its ranks have met, and how often it was started again.
inline constexpr char kJobName[] = "LOCKSTEP_JOB";
inline constexpr char kJobRestarts[] = "LOCKSTEP_RESTARTS";

// Runs it to its end and returns the exit status that its user gets. Throws Error (kUsage).
int RunSupervised(const SupervisedJob& job);

}  // namespace lockstep
