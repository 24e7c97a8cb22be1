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

#include "config/schema/config.pb.h"
#include "observe/device_memory.h"
#include "observe/machine/gpu_reader.h"
#include "observe/step_clock.h"
#include "trainer/run/stopping.h"
#include "trainer/step/world.h"

namespace lockstep {

struct Extensions;  // trainer/run/extensions.h

struct TrainOptions {
  std::string version;  // the version of the program, for the log
  bool live = false;    // whether standard output is a terminal
  bool fresh = false;   // whether an existing run in the folder is moved to another name
  // The checkpoint from which to begin if the run folder has none: RUN (its newest) or RUN@STEP; empty: none.
  std::string from;
  // When the user's command began, and when it must have ended, on the clock of base/clock.h.
  double command_start_s = 0;
  double end_by_s = std::numeric_limits<double>::infinity();
  int64_t restarts = 0;  // how often the job was started again after failures
  std::string job;  // on rank 0: the name of the job, which no other job has; empty: it has none
  // On the first rank of each machine: the ranks of that machine that have a GPU. On the others no value.
  std::optional<std::vector<GpuUser>> gpu_users;
  // Returns what this rank is asked to do. If one rank is asked, all ranks obey. It is called in each step.
  std::function<StopRequest()> asked_to_stop = [] { return StopRequest::kNone; };
  // Reports an error that only this rank has, and ends the process.
  std::function<void(const std::exception&)> leave;
};

// Trains `config` in its run folder. Continues from the newest checkpoint there, if there is one. Trains to the end of
// the run or until a rank is asked to stop. In that case the state is committed, and the function returns the request.
// Every rank must call it, and every rank gets the same result. Throws Error.
StopRequest Train(config::Config config, const Extensions& extensions, const World& world,
                  const TrainOptions& options);

struct StepMeasurement {
  std::vector<double> step_ms;  // the time of each timed step
  std::array<double, kPhases.size()> phase_ms{};
  double first_step_s = 0;  // from the user's command to the end of the first step
  DevicePeak memory;        // zeros on the CPU
  // The operations of this rank's matrix products and convolutions in the forward of one step.
  int64_t forward_flops = 0;
  double peak_flops = 0;  // the peak of the device's arithmetic, in FLOP/s; 0: unknown
  int64_t parameters = 0;
  int64_t samples = 0;  // of the training set
  double loss = 0;      // the loss of the last step
  config::Precision precision = config::FP32;
  int accumulation = 1;  // the config's value, or more if memory ran out
  std::string why_no_graph;
};

// Makes `warmup` steps of `config`, at least one, and then `steps` steps that are timed. The data lie on the device,
// and nothing is saved. `trace` is the file for a Chrome trace of some more steps on rank 0; empty: none. Every rank
// must call it. Throws Error.
StepMeasurement MeasureSteps(config::Config config, const Extensions& extensions,
                             const World& world, int warmup, int steps, const std::string& trace,
                             const TrainOptions& options);

}  // namespace lockstep
