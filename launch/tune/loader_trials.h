// FindLoader(): finds the settings with which the data loader delivers the most samples a second: its number of
// threads, how many batches it may prefetch, and, for images, whether they are decoded on the GPU and whether decoded
// images are kept in memory.
//
// Each setting is measured in a process of its own, with the config's files, from reading a sample to the model's input
// on its device. No model trains meanwhile. If a GPU that decodes also trains, or if the model runs on the CPU, the
// loader gets less of their time than in these measurements.
#pragma once

#include <functional>

#include "config/schema/config.pb.h"
#include "launch/tune/setting.h"
#include "launch/tune/trial.h"

namespace lockstep {

// Returns the config with the values of a setting. Throws Error (kUsage) if the result is no valid config.
using ConfigWith = std::function<config::Config(const Setting&)>;

// Returns whether the config's samples come from files or from a data set of the user's program, so that there are
// loader settings to find.
bool HasLoader(const config::Config& config);

struct LoaderSearch {
  int ranks = 1;      // the ranks on this machine
  bool cold = false;  // files are read from the disk each time, as in a first epoch
  double ample = 0;   // samples/s; if the config as it is reaches more, the search ends at once
  double end_s = 0;   // when the search ends, on the clock of SecondsSinceBoot()
};

// Looks for the fastest setting. Calls `on_trial` after each trial. Throws Error.
SettingTrials FindLoader(TrialRunner& runner, const ConfigWith& config_with,
                         const LoaderSearch& search,
                         const std::function<void(const SettingTrial&)>& on_trial);

}  // namespace lockstep
