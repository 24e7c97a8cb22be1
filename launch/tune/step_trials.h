// StepTrials: finds the fastest way to make a config's step: in how many micro-batches, and with or without activation
// checkpointing. The global batch, and so the training, stays the same.
//
// Each way is timed in a process of its own, with the real model, optimizer and reductions, on samples that lie on the
// device: the loader is not measured. Ways that leave too little memory do not count, because evaluations, checkpoints
// and other programs need some, too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "config/schema/config.pb.h"
#include "launch/tune/step_search.h"
#include "launch/tune/trial.h"

namespace lockstep {

// A way that was timed.
struct TimedWay {
  StepWay way;  // as it was asked for
  StepTrial trial;
  bool is_users = false;           // it is the config as it is
  bool leaves_too_little = false;  // memory
};

struct FoundWay {
  std::optional<TimedWay> best;
  std::optional<TimedWay> users;
  bool fits = false;                  // some way does, though it may leave too little memory
  bool out_of_time = false;           // the search had not come to its end
  std::optional<ExitStatus> stopped;  // as in Trial
};

// Looks for the way. `time_limit_s` bounds it, up to the end of a trial that has begun. `reserve` is the share of the
// GPU's memory that is to stay free. Calls `on_trial` after each trial. Throws Error.
FoundWay FindWay(TrialRunner& runner, const config::Config& config, double time_limit_s,
                 double reserve, const std::function<void(const TimedWay&)>& on_trial);

}  // namespace lockstep
