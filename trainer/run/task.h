// Makes a config's data sets and model on this rank.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor/named_tensor.h"
#include "data/dataset/dataset.h"
#include "data/feed/augment.h"
#include "data/feed/device_feed.h"
#include "data/feed/loader.h"
#include "data/feed/sampler.h"
#include "trainer/config/config.pb.h"
#include "trainer/models/model.h"
#include "trainer/run/datasets.h"
#include "trainer/step/preprocessing.h"
#include "trainer/step/world.h"

namespace lockstep {

struct TrainingData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> validation;  // null: none
  config::Csv csv;                     // the config's, completed with what the training files held
  std::vector<std::string> remarks{};  // what the user should know of the files, a line each
};

// The GPU that decodes this rank's images; none: the CPU does. Throws Error (kUsage) where config.decode
// cannot be.
std::optional<at::Device> DecodingGpu(const config::Images& config, const World& world);

// Opens the training and validation sets. Throws Error (kData, kUsage).
TrainingData OpenTrainingData(const config::Config& config, const Datasets& datasets,
                              const World& world);

// The config as this data resolves it: what it left to the data is written down. Throws Error (kData).
config::Config Resolved(config::Config config, const TrainingData& training);

// What the config says of the samples, complete once the data have been opened.
SampleSpec SpecOf(const config::Data& config);

// Opens other files of the config's format, as training with `spec` would see them; labels may be
// left out (CSV: the label column; MNIST: the second file) where `label_optional`, which is for
// predictions: data.bad_samples does not count then. On rank 0 a warning for each of Dataset::Remarks(). Throws Error
// (kData, kUsage).
std::shared_ptr<const Dataset> OpenFiles(const config::Config& config,
                                         const std::vector<std::string>& files,
                                         const SampleSpec& spec, bool label_optional,
                                         const Datasets& datasets, const World& world);

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

// The model on the device, its weights drawn from config.seed or read from config.init_from; not
// yet the same on all ranks. Throws Error (kUsage, kCheckpoint).
std::shared_ptr<Model> MakeModel(const config::Config& config, const SampleSpec& spec,
                                 const Models& models, const World& world);

// The order of `samples` samples for one of `ranks` ranks, with the config's global batch in `accumulation` pieces.
SamplerOptions SamplerOptionsFor(const config::Config& config, int64_t accumulation,
                                 int64_t samples, int rank, int ranks);

// The config's loader of `dataset` for this rank. -1 threads: one for each core that the rank has beyond
// the one that trains, at most 63, and then as many as tuning finds best; two and at most eight where the
// data set has its samples made many at once.
LoaderOptions LoaderOptionsFor(const config::Loader& config, const Dataset& dataset,
                               const World& world);

}  // namespace lockstep
