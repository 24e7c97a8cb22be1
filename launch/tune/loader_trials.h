// FindLoader(): finds the settings with which the data loader delivers the most samples a second: the number of its
// threads, the number of batches that it may prefetch, and, for images, whether the GPU decodes the images and whether
// decoded images are kept in memory.
//
// Each setting is measured in a process of its own, with the config's files. The measurement covers all work on a
// sample, from reading the sample until the model's input is on its device. No model trains during the measurement. If
// the GPU that decodes also trains, or if the model runs on the CPU, the loader gets a smaller share of that GPU or CPU
// during training than in these measurements.
#pragma once

#include <functional>

#include "config/schema/config.pb.h"
#include "launch/tune/setting.h"
#include "launch/tune/trial.h"

namespace lockstep {

// A function that returns the config with the values of a setting. It throws Error (kUsage) if the result is no valid
// config.
using ConfigWith = std::function<config::Config(const Setting&)>;

// Returns whether the config's samples come from files or from a data set of the user's program, so that there are
// loader settings to find.
bool HasLoader(const config::Config& config);

struct LoaderSearch {
  int ranks = 1;      // the number of ranks on this machine, which share its memory
  bool cold = false;  // true: files are read from the disk in each trial, as in a first epoch
  double ample = 0;   // samples/s; if the user's config reaches more, the search ends at once
  double end_s = 0;   // when the search ends, on the clock of SecondsSinceBoot()
};

// Looks for the fastest setting, and returns the results of all trials. Calls `on_trial` after each trial. Throws
// Error.
SettingTrials FindLoader(TrialRunner& runner, const ConfigWith& config_with,
                         const LoaderSearch& search,
                         const std::function<void(const SettingTrial&)>& on_trial);

}  // namespace lockstep
