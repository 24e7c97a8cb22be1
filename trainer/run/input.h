// Input: brings samples from a data set to the model. It consists of the order of the samples, the threads that read
// them, and the copy to the device.
#pragma once

#include <memory>

#include "data/dataset/dataset.h"
#include "data/feed/device_feed.h"
#include "data/feed/loader.h"
#include "data/feed/sampler.h"
#include "trainer/config/schema/config.pb.h"
#include "trainer/step/preprocessing.h"
#include "trainer/step/world.h"

namespace lockstep {

// A data set's micro-batches on the device, as the model takes them once Preprocessing is applied.
struct Input {
  // Keeps a reference to `dataset`.
  Input(const Dataset& dataset, const Preprocessing& preprocessing, const Sampler& sampler,
        const LoaderOptions& options, at::Device device);

  const std::unique_ptr<const Dataset>
      in_loader;  // what the loader reads in its place, if anything
  Loader loader;
  DeviceFeed feed;
};

// The order of `samples` samples for one of `ranks` ranks, with the config's global batch in `accumulation` pieces.
SamplerOptions SamplerOptionsFor(const config::Config& config, int64_t accumulation,
                                 int64_t samples, int rank, int ranks);

// The config's loader of `dataset` for this rank. -1 threads: one for each core that the rank has beyond
// the one that trains, at most 63, and then as many as tuning finds best; two and at most eight where the
// data set has its samples made many at once.
LoaderOptions LoaderOptionsFor(const config::Loader& config, const Dataset& dataset,
                               const World& world);

}  // namespace lockstep
