// Restarts: decides whether a job that failed is started again, and when.
//
// Promise: a job is not started again if its command, config or data are wrong, or if it has failed three times in a
// row and came at most a few steps further than before. Such a job would only fail again.
//
// The tests are in launch/job/restarts_test.cc and, with real jobs, in tests/restart_test.py.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

class Restarts {
 public:
  explicit Restarts(int most) : most_(most) {}

  struct Decision {
    bool again = false;
    double delay_s = 0;
    std::string why;  // if `again` is false: why the job is not started again
  };

  // Decides whether the job, which failed with `status`, is started again. `step` is the number of the last step that
  // the job had begun, or 0 if it had begun none.
  Decision After(int status, int64_t step);

  // The number of restarts so far, including the one that After() decided on last.
  int count() const { return count_; }

 private:
  int most_;
  int count_ = 0;
  int64_t furthest_ = -1;  // the greatest `step` of all failures; -1: no failure
  int failures_there_ = 0;
};

// Returns the furthest step that the run in `run_dir` has begun since its last start, according to its flight records
// and its log.
int64_t FurthestStep(const std::string& run_dir);

}  // namespace lockstep
