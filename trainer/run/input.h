// Input: brings samples from a data set to the device. It consists of the loader, whose threads read the samples in the
// sampler's order, and of the feed, which copies them to the device.
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

// Reads a data set's micro-batches and copies them to the device. The caller must apply Preprocessing to their inputs
// before the model gets them.
struct Input {
  // Keeps a reference to `dataset`.
  Input(const Dataset& dataset, const Preprocessing& preprocessing, const Sampler& sampler,
        const LoaderOptions& options, at::Device device);

  // The data set that the loader reads instead of `dataset` (Preprocessing::InLoader()); null: the loader reads
  // `dataset`.
  const std::unique_ptr<const Dataset> in_loader;
  Loader loader;
  DeviceFeed feed;
};

// Returns the options of the sampler of rank `rank` of `ranks`. The sampler divides the config's global batch into
// `accumulation` micro-batches.
SamplerOptions SamplerOptionsFor(const config::Config& config, int64_t accumulation,
                                 const TrainingData& data, int rank, int ranks);

// Returns the number of optimizer steps of the whole run of `config` on a training set with `samples` samples. Throws
// Error (kUsage).
int64_t StepsOfRun(const config::Config& config, int64_t samples);

// Returns the options of this rank's loader for `dataset`. If `config` says -1 threads, the loader begins with one
// thread for each core of the rank except one (which the training thread uses), at most 63, and then adapts the number
// while the run trains. If in this case the data set makes several samples at once (Dataset::samples_at_once()), the
// loader begins with two threads and uses at most eight.
LoaderOptions LoaderOptionsFor(const config::Loader& config, const Dataset& dataset,
                               const World& world);

}  // namespace lockstep
