// TrainOptions: the options, besides the config, of a command that trains or measures. OrLeave(): ends this rank's
// process if it has an error that other ranks do not have.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "comm/together.h"
#include "observe/machine/gpu_reader.h"
#include "trainer/run/stopping.h"
#include "trainer/step/world.h"

namespace lockstep {

struct Extensions;  // trainer/run/extensions.h

struct TrainOptions {
  std::string version;  // the version of the program, for the log
  bool live = false;    // whether standard output is a terminal
  bool fresh = false;   // whether an existing run folder is renamed, so that a new run begins
  // The checkpoint from which to begin if the run folder has no checkpoint: RUN (the newest checkpoint of that run) or
  // RUN@STEP; empty: begin at step 0.
  std::string from;
  // When the user's command began, and when the command must have ended, in seconds on the clock of base/clock.h.
  double command_start_s = 0;
  double end_by_s = std::numeric_limits<double>::infinity();
  int64_t restarts = 0;  // how often the job was restarted after failures
  std::string job;       // on rank 0: the unique name of the job; empty: a random name
  // On the first rank of each machine: the GPUs of that machine's ranks. On other ranks it has no value.
  std::optional<std::vector<GpuUser>> gpu_users;
  // Returns whether this rank is asked to stop. It is called before each step. If any rank is asked to stop, all ranks
  // stop.
  std::function<StopRequest()> asked_to_stop = [] { return StopRequest::kNone; };
  // Reports an error that only this rank has, and ends the process without returning.
  std::function<void(const std::exception&)> leave;
};

// Returns whether the error of a kernel has made the GPU unusable for this process. Returns false for a CPU.
bool IsLost(at::Device device);

// Calls `act` and returns its result. If `act` throws an error that only this rank has, or if `act` throws any error
// and the GPU is lost (IsLost()), options.leave() ends the process in this call, before destructors run. The
// destructors must not run, because they might never return: a loader's thread may wait for a copy that is queued on
// the GPU after a collective in which the other ranks wait. On a lost GPU LibTorch's destructors throw.
template <typename Act>
auto OrLeave(const TrainOptions& options, at::Device device, const Act& act) {
  try {
    return act();
  } catch (const std::exception& exception) {
    if (!ErrorOf(exception).on_every_rank() || IsLost(device)) options.leave(exception);
    throw;
  }
}

}  // namespace lockstep
