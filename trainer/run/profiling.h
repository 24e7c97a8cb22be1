// Profiling: records some steps of a run, on all ranks at once, and writes their traces and their summary into the run
// folder (observe/profile/profile_files.h).
//
// The config field `profile` says which steps are recorded, and a user can ask for more while the run trains (`lockstep
// profile`). Rank 0 looks for such a request. The other ranks learn of it through the values that each step sums over
// the ranks.
//
// Promise: a recorded step computes the same as without recording. A profile that cannot be written gives a warning,
// and the run goes on.
//
// Invariant: all ranks record the same steps.
//
// what can fail -> what the caller sees -> the test that shows it (tests/profile_test.py)
//   a rank cannot write its trace, or nothing was recorded -> a warning on rank 0 -> test_a_disk_that_takes_no_trace
//   the run ends, stops or evaluates before the last step to record -> the profile has fewer steps
//     -> test_a_run_that_ends_within_a_profile, test_a_profile_ends_with_the_epoch
//   the run's first profile cannot be read -> a warning, and the new one is not compared with it
//     -> test_a_first_profile_that_is_damaged
//   two users ask at once -> the second one's command says so -> test_two_requests
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor/range.h"
#include "config/schema/config.pb.h"
#include "observe/profile/profile_files.h"
#include "observe/profile/profiler.h"
#include "observe/profile/trace_places.h"
#include "observe/run_event.h"
#include "trainer/step/world.h"

namespace lockstep {

class Profiling {
 public:
  struct Options {
    std::string version;                    // version of the program
    int64_t last_step = 0;                  // the last step of the run
    double peak_flops = 0;                  // peak of the device, in FLOP/s; 0: unknown
    std::function<NodesOfGraphs()> graphs;  // returns the CUDA graphs that steps may have run
  };

  // Keeps references to `config`, `world` and `events`.
  Profiling(const config::Config& config, const World& world, RunEvents& events, Options options);

  // On rank 0, returns how many steps in total the user has asked to record so far. On other ranks, returns 0.
  int64_t Asked();

  // Call it when the host has seen the figures of a step. `asked`: what Asked() returned on rank 0 in that step.
  void OnFigures(int64_t asked) { heard_ = asked; }

  // Call it before `step`, counted from 1.
  void BeforeStep(int64_t step);

  // Call it after `step`. If it was the last one to record, or if the recording `ends` here, because the run stops or
  // evaluates, every rank writes what it has recorded.
  void AfterStep(int64_t step, bool ends);

 private:
  bool IsDue(int64_t step) const;
  void Write();
  RankProfile WriteTrace();
  void WriteSummary(const std::vector<std::string>& ranks);
  std::vector<std::string> SlowerThanFirst(const RunProfile& profile);

  const config::Profile& when_;
  const std::string& run_dir_;
  const World& world_;
  RunEvents& events_;
  Options options_;
  Profiler profiler_;
  std::optional<Range> step_range_;
  int64_t first_step_ = 0;  // first and last step of the recording
  int64_t last_step_ = 0;
  int64_t asked_ = 0;    // the value that Asked() returns
  int64_t heard_ = 0;    // the argument of the last OnFigures()
  int64_t begun_ = 0;    // how many of the heard_ steps belong to recordings that have begun
  bool is_due_ = false;  // whether the config's next recording waits for the end of another one
  bool answers_user_ = false;  // whether the user asked for this recording
  bool user_waits_ = false;
  double looked_s_ = 0;  // when Asked() last looked for a request
};

}  // namespace lockstep
