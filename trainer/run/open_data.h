// Opens the data sets that a config names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/formats/datasets.h"
#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"
#include "data/feed/weighted_draws.h"
#include "trainer/step/world.h"

namespace lockstep {

class MemoryBudget;  // data/images/kept_bytes.h

struct TrainingData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> validation;  // null: none
  std::shared_ptr<const WeightedDraws>
      draws;  // which training samples an epoch takes; null: it takes each once
  // config.data, completed with the values that were computed from the training files.
  config::Data data;
  std::shared_ptr<const MemoryBudget> kept;  // memory of data.images.cache_mib
  std::vector<std::string> remarks{};  // lines that tell the user how the files were interpreted
};

// Opens the training and validation sets. Throws Error (kData, kUsage).
TrainingData OpenTrainingData(const config::Config& config, const Datasets& datasets,
                              const World& world);

// Returns the config, completed with the values that it leaves to the data, such as data.input_shape. Throws Error
// (kData).
config::Config Resolved(config::Config config, const TrainingData& training);

// Returns the description of the samples that `config` gives. It is complete if `config` was completed with the values
// from the data (Resolved()).
SampleSpec SpecOf(const config::Data& config);

// Opens `files`, which have the config's format, and reads them as a training with samples of `spec` would. With
// `label_optional`, which is for predictions, labels may be missing (CSV: the label column; MNIST: the second file),
// and data.bad_samples has no effect. On rank 0 prints a warning for each of Dataset::Remarks(). Throws Error (kData,
// kUsage).
std::shared_ptr<const Dataset> OpenFiles(const config::Config& config,
                                         const std::vector<std::string>& files,
                                         const SampleSpec& spec, bool label_optional,
                                         const Datasets& datasets, const World& world);

}  // namespace lockstep
