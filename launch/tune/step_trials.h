// FindWay(): finds the fastest way to make a config's step: the number of micro-batches, and whether activation
// checkpointing is used. The global batch does not change, so each step still trains on the same number of samples.
//
// Each way is timed in a process of its own, with the real model, optimizer and reductions, on samples that already lie
// on the device, so that the loader is not measured. A way that leaves too little memory free is not used, because
// evaluations, checkpoints and other programs need memory, too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "config/schema/config.pb.h"
#include "launch/tune/step_search.h"
#include "launch/tune/trial.h"

namespace lockstep {

// A way that was timed, and the result.
struct TimedWay {
  StepWay way;  // the way that was asked for; `trial` may have more micro-batches
  StepTrial trial;
  bool is_users = false;           // `way` is the way of the user's config
  bool leaves_too_little = false;  // the step leaves less memory free than `reserve` asks for
};

struct FoundWay {
  std::optional<TimedWay> best;
  std::optional<TimedWay> users;
  bool fits = false;                  // at least one way fits in memory
  bool has_others = false;            // another way than the user's was timed
  bool out_of_time = false;           // the time was over before the search ended
  std::optional<ExitStatus> stopped;  // the exit status, if a signal asked to stop
};

// Looks for the fastest way. After the first trial, no trial begins that would probably end more than `time_limit_s`
// seconds after the call. `reserve` is the share of the GPU's memory that is to stay free. Calls `on_trial` after each
// trial. Throws Error.
FoundWay FindWay(TrialRunner& runner, const config::Config& config, double time_limit_s,
                 double reserve, const std::function<void(const TimedWay&)>& on_trial);

}  // namespace lockstep
