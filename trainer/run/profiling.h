// Profiling: records some steps of a run with a profiler, on all ranks at once, and writes the ranks' traces and one
// summary into the run folder (observe/profile/profile_files.h).
//
// The config field `profile` says which steps are recorded, and a user can ask for more steps while the run trains
// (`lockstep profile`). Rank 0 looks for the user's request file. The other ranks learn of the request through the
// values that each step sums over the ranks.
//
// Promise: a recorded step computes the same results as a step that is not recorded. A profile that cannot be written
// gives a warning, and the run goes on.
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
    std::function<NodesOfGraphs()> graphs;  // returns the nodes of the CUDA graphs of steps
  };

  // Keeps references to `config`, `world` and `events`.
  Profiling(const config::Config& config, const World& world, RunEvents& events, Options options);

  // Returns, on rank 0, how many steps in total the user has asked to record so far. Returns 0 on other ranks.
  int64_t Asked();

  // Stores `asked`, the value that Asked() returned on rank 0 in a step. Call it when the host has read that step's
  // figures.
  void OnFigures(int64_t asked) { heard_ = asked; }

  // Starts a recording if one is due. Call it before `step`, counted from 1.
  void BeforeStep(int64_t step);

  // Ends the recording, if there is one, after its last step, or if `ends` says that the run now stops or evaluates.
  // Every rank then writes its trace. Call it after `step`, counted from 1.
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
  int64_t first_step_ = 0;     // the first step of the recording, counted from 1
  int64_t last_step_ = 0;      // the last step of the recording
  int64_t asked_ = 0;          // the value that Asked() returns
  int64_t heard_ = 0;          // the argument of the last OnFigures()
  int64_t begun_ = 0;          // the value of heard_ when BeforeStep() last read it
  bool is_due_ = false;        // whether a recording of the config is due but has not begun
  bool answers_user_ = false;  // whether the user asked for this recording
  bool user_waits_ = false;    // whether a request of the user is not answered yet
  double looked_s_ = 0;  // when Asked() last looked for a request, on the clock of base/clock.h
};

}  // namespace lockstep
