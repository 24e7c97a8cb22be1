// Train(): trains the model of a config on all ranks, from start to end.
//
// what can fail -> what the caller sees -> the test that shows it (tests/bad_input_test.py)
//   data, model or config that do not go together -> the same Error on every rank, before the first
//     step -> test_unknown_model, test_bad_csv, ...
//   loss or gradient are not finite -> Error (kUsage) on every rank, with the step
//     -> tests/precision_test.py
//     -> test_a_loss_that_is_not_finite
//   a rank throws in the first step -> its error on every rank -> test_a_rank_that_throws
//   a rank throws later -> options.leave, which ends the others, too
//     -> tests/fault_test.py, test_a_rank_that_throws
//   a checkpoint cannot be written -> the log says so, and the run goes on; the last one: Error (kCheckpoint)
//     on every rank -> tests/checkpoint_fault_test.py, test_a_disk_that_fails
//   the run folder is not this run's, or not the same on all machines -> trainer/run/run_folder.h,
//     tests/resume_test.py, test_machines_that_share_no_disk
//   the checkpoint to begin from is missing, damaged, or of other data -> Error (kCheckpoint, kData) on every
//     rank -> tests/resume_test.py, test_from_what_cannot_be_gone_on_from
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "observe/machine/gpu_reader.h"
#include "observe/step_clock.h"
#include "trainer/config/schema/config.pb.h"
#include "trainer/run/stopping.h"
#include "trainer/step/world.h"

namespace lockstep {

struct Extensions;  // trainer/run/extensions.h

struct TrainOptions {
  std::string version;  // of the program, for the log
  bool live = false;    // standard output is a terminal
  bool fresh = false;   // a run that is in the folder is moved away
  // The checkpoint to begin from where the run folder has none: RUN, its newest, or RUN@STEP; empty: none.
  std::string from;
  // These two on the clock of base/clock.h: when the user's command began, and when it is to have ended.
  double command_start_s = 0;
  double end_by_s = std::numeric_limits<double>::infinity();
  int64_t restarts = 0;  // of the job so far, after failures
  std::string job;       // its name, which no other has, if it has one: on rank 0
  // On the first rank of each machine: the ranks of that machine that have a GPU. On the others no value.
  std::optional<std::vector<GpuUser>> gpu_users;
  // This rank's; all ranks obey what one is asked for. Called in each step.
  std::function<StopRequest()> asked_to_stop = [] { return StopRequest::kNone; };
  // Says what went wrong on this rank alone and ends the process.
  std::function<void(const std::exception&)> leave;
};

// Trains `config` into its run folder, from the newest checkpoint there, if there is one, to its end or until a
// rank is asked to stop: then the state is committed and what it was asked for is returned. Every rank must call
// it, and gets the same. Throws Error.
StopRequest Train(config::Config config, const Extensions& extensions, const World& world,
                  const TrainOptions& options);

struct StepMeasurement {
  std::vector<double> step_ms;  // of each timed step
  std::array<double, kPhases.size()> phase_ms{};
  double first_step_s = 0;    // from the user's command to the end of the first step
  int64_t peak_bytes = 0;     // of tensors on the device; 0 on the CPU
  int64_t forward_flops = 0;  // of this rank's matrix products and convolutions in one step
  int64_t parameters = 0;
  double loss = 0;  // of the last step
  config::Precision precision = config::FP32;
  int accumulation = 1;  // the config's, or more where memory ran out
  std::string why_no_graph;
};

// Makes `warmup` steps of `config`, at least one, and then `steps` that are timed, on data that lie
// on the device, and keeps nothing. `trace`: file for a Chrome trace of some more steps on rank 0;
// empty: none. Every rank must call it. Throws Error.
StepMeasurement MeasureSteps(config::Config config, const Extensions& extensions,
                             const World& world, int warmup, int steps, const std::string& trace,
                             const TrainOptions& options);

}  // namespace lockstep
