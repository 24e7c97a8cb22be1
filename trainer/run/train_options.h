// TrainOptions: the options of a command that trains or measures, besides the config. OrLeave(): ends the process of a
// rank that alone has an error.
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
  bool fresh = false;   // whether an existing run folder is first renamed
  // The checkpoint from which to begin if the run folder has none: RUN (its newest) or RUN@STEP; empty: none.
  std::string from;
  // When the user's command began, and when it must have ended, on the clock of base/clock.h.
  double command_start_s = 0;
  double end_by_s = std::numeric_limits<double>::infinity();
  int64_t restarts = 0;  // how often the job was started again after failures
  std::string job;       // on rank 0: the unique name of the job; empty: it has none
  // On the first rank of each machine: the ranks of that machine that have a GPU. It has no value on other ranks.
  std::optional<std::vector<GpuUser>> gpu_users;
  // Returns what this rank is asked to do. If one rank is asked, all ranks obey. It is called in each step.
  std::function<StopRequest()> asked_to_stop = [] { return StopRequest::kNone; };
  // Reports an error that only this rank has, and ends the process.
  std::function<void(const std::exception&)> leave;
};

// Returns whether a kernel's error has made the GPU unusable for this process. Always returns false for a CPU.
bool IsLost(at::Device device);

// Calls `act`. If it throws an error that only this rank has, or if the GPU is lost, options.leave() ends the process
// here, before destructors run. While other ranks wait for this one, the objects of the training must not be destroyed:
// a loader's thread may wait for a copy that is queued after a collective that never ends. On a lost GPU LibTorch's
// destructors throw.
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
