// Runs a command as a job of this process: starts the job, waits for its end, and starts it again after a failure.
//
// what can fail -> what the caller sees -> the test that shows it (tests/restart_test.py)
//   the job fails -> it is started again, as often as allowed -> test_a_job_goes_on_by_itself
//   the job fails three times in a row and gets no further -> it is not started again, and a line says so
//     -> test_a_job_that_gets_no_further
//   the job fails when its time is over, or after its user has made the file STOP -> it is not started again; status 75
//     or 130
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
  std::string run_dir;  // the run folder; empty: the job does not train
  double end_by_s = std::numeric_limits<double>::infinity();  // deadline, on base/clock.h's clock
  int restarts = 0;  // how many restarts after failures are allowed
  // Whether the job's output is its result, so that lost output is an error.
  bool prints_result = false;
  bool on_other_machines = false;
  // Returns a line that says why the ranks did not meet. This function is called if the ranks of a job that trains did
  // not meet, no rank was killed, and the user did not ask the job to end.
  std::function<std::string()> why_no_start;
  // Returns the program to start after a failure; nothing if no machine or GPU is left. If what_is_left is not set,
  // `program` is started again.
  std::function<std::optional<Supervisor::Program>()> what_is_left;
};

// Environment variables that the job gets. kJobRestarts is the number of restarts so far. kJobHasBegun is kYes if an
// earlier start of the job has locked its run folder; options that hold only for the first start (--fresh) are then
// ignored.
inline constexpr char kJobRestarts[] = "LOCKSTEP_RESTARTS";
inline constexpr char kJobHasBegun[] = "LOCKSTEP_HAS_BEGUN";
inline constexpr char kYes[] = "yes";

// Returns the error of a command whose result could not be written to standard output. `number` is the errno.
Error LostOutput(int number);

// Runs the job to its end and returns the exit status for the user. Throws Error (kUsage).
int RunSupervised(const SupervisedJob& job);

}  // namespace lockstep
