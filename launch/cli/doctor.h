// `lockstep doctor`: whether this machine, or with -n the machines of a job, have all that a run needs, measured.
//
// Promise: what would end or slow a run is a line that says what to do; what cannot be looked at is left out, not
// guessed. Nothing is left on the disk.
//
// what can fail -> what the caller sees -> the test that shows it (tests/doctor_test.py)
//   any of what it looks at -> a line that begins with warn or fail; with a failure exit status 2 -> a case each
//   the ranks cannot meet -> the Error that a run would end with -> test_little_shared_memory
#pragma once

#include <string>

#include "base/error.h"
#include "launch/job/job.h"
#include "trainer/config/config.pb.h"

namespace lockstep {

struct DoctorOptions {
  std::string version;       // of this program
  std::string folder = ".";  // where runs will be
  config::Config::Device device = config::Config::AUTO;
  bool json = false;
};

// Every rank must call it; rank 0 prints. kUsage: a check failed. Throws Error.
ExitStatus RunDoctor(const DoctorOptions& options, Job& job);

}  // namespace lockstep
