// Opens the data sets that a config names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "trainer/config/schema/config.pb.h"
#include "trainer/formats/datasets.h"
#include "trainer/step/world.h"

namespace lockstep {

struct TrainingData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> validation;  // null: none
  config::Data data;                   // the config's, completed with what the training files held
  std::vector<std::string> remarks{};  // what the user should know of the files, a line each
};

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

}  // namespace lockstep
