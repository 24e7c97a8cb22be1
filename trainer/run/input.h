// Input: brings samples from a data set to the model. It consists of the order of the samples, the threads that read
// them, and the copy to the device.
#pragma once

#include <memory>

#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"
#include "data/feed/device_feed.h"
#include "data/feed/loader.h"
#include "data/feed/sampler.h"
#include "trainer/run/open_data.h"
#include "trainer/step/preprocessing.h"
#include "trainer/step/world.h"

namespace lockstep {

// The micro-batches of a data set on the device. The model takes them after Preprocessing was applied.
struct Input {
  // Keeps a reference to `dataset`.
  Input(const Dataset& dataset, const Preprocessing& preprocessing, const Sampler& sampler,
        const LoaderOptions& options, at::Device device);

  // The data set that the loader reads instead of `dataset`, if there is one.
  const std::unique_ptr<const Dataset> in_loader;
  Loader loader;
  DeviceFeed feed;
};

// Returns the options of a sampler for one of `ranks` ranks, with the config's global batch in `accumulation`
// micro-batches.
SamplerOptions SamplerOptionsFor(const config::Config& config, int64_t accumulation,
                                 const TrainingData& data, int rank, int ranks);

// Returns the number of optimizer steps of the whole run of `config` on a training set of `samples`. Throws Error
// (kUsage).
int64_t StepsOfRun(const config::Config& config, int64_t samples);

// Returns the options of this rank's loader for `dataset`. If the config has -1 threads, the loader begins with one
// thread for each core of the rank except the one that trains, at most 63, and tuning then changes the number. If the
// data set makes many samples at once, the loader begins with two threads, and tuning goes up to eight.
LoaderOptions LoaderOptionsFor(const config::Loader& config, const Dataset& dataset,
                               const World& world);

}  // namespace lockstep
