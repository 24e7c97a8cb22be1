// Opens the data sets that a config names.
#pragma once

#include <memory>
#include <string>
#include <string_view>
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
  std::shared_ptr<const Dataset> validation;  // null: there is no validation set
  std::shared_ptr<const WeightedDraws>
      draws;  // which training samples an epoch takes; null: each sample once
  // config.data, completed with the values that were computed from the training files.
  config::Data data;
  std::shared_ptr<const MemoryBudget> kept;  // the cache of data.images.cache_mib
  std::vector<std::string> remarks{};  // lines that tell the user how the files were interpreted
};

// Opens the training set and the validation set of `config`. Throws Error (kData, kUsage).
TrainingData OpenTrainingData(const config::Config& config, const Datasets& datasets,
                              const World& world);

// Returns `config`, completed with the values that follow from the data, such as data.input_shape. Throws Error (kData)
// if data.input_shape is set and differs from the shape of the samples, and Error (kUsage) if balanced weights cannot
// be computed (SetBalancedWeights()).
config::Config Resolved(config::Config config, const TrainingData& training);

// Returns the description of the samples that `config` gives. The description is complete if `config` was completed
// with the values from the data (Resolved()).
SampleSpec SpecOf(const config::Data& config);

// Opens `files`, which have the config's format, as a data set without random augmentation, whose samples must be as
// `spec` describes them. If `label_optional` is set, as it is for predictions, labels may be missing (CSV: the label
// column; MNIST: the second file), and data.bad_samples has no effect. Appends Dataset::Remarks() to `remarks`. Throws
// Error (kData, kUsage).
std::shared_ptr<const Dataset> OpenFiles(const config::Config& config,
                                         const std::vector<std::string>& files,
                                         const SampleSpec& spec, bool label_optional,
                                         const Datasets& datasets, const World& world,
                                         std::vector<std::string>& remarks);

// Returns for each of `columns` of the tables `files` the texts of all rows, in the order of the samples that
// OpenFiles() gives. `field` is the option that names the columns, for error messages. Throws Error (kData).
std::vector<std::vector<std::string>> ReadFileColumns(const config::Config& config,
                                                      const std::vector<std::string>& files,
                                                      const std::vector<std::string>& columns,
                                                      std::string_view field);

}  // namespace lockstep
