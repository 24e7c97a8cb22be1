// FindLoader(): finds the loader's settings with which it reads the most samples a second: how many threads it has, how
// many batches they may be ahead, and, for images, where they are decoded and what is kept in memory.
//
// Each setting is measured in a process of its own with the config's files, up to what the model gets, while nothing
// trains. A GPU that also trains, or a model on the CPU, leaves less to the loader.
#pragma once

#include <functional>

#include "config/schema/config.pb.h"
#include "launch/tune/setting.h"
#include "launch/tune/trial.h"

namespace lockstep {

// Returns the config with a setting. Throws Error (kUsage) if it cannot have it.
using ConfigWith = std::function<config::Config(const Setting&)>;

// Whether there is anything to find: whether the config's samples come from files or a data set of the user's.
bool HasLoader(const config::Config& config);

struct LoaderSearch {
  int ranks = 1;      // on this machine
  bool cold = false;  // the files are read from the disk each time, as in a first epoch
  double ample = 0;   // samples/s; if the config as it is gives more, nothing else is tried
  double end_s = 0;   // SecondsSinceBoot()
};

// Looks for the setting. Calls `on_trial` after each trial. Throws Error.
SettingTrials FindLoader(TrialRunner& runner, const ConfigWith& config_with,
                         const LoaderSearch& search,
                         const std::function<void(const SettingTrial&)>& on_trial);

}  // namespace lockstep
