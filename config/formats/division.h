// Division: how a config divides the samples of the training files into those that are trained on and those that are held
// back (data.validation_fraction, data.folds).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/config.pb.h"
#include "data/dataset/split.h"

namespace lockstep {

// The keys that samples can be divided by. Each function is called only if the division needs it.
struct DivisionKeys {
  std::function<std::vector<int64_t>()> classes;  // of each sample; null: samples have no classes
  std::function<std::vector<int64_t>()>
      groups;  // of each sample the number of its data.folds.group
};

// Returns nothing if no samples are held back. Throws Error (kUsage), and any exception of `keys`.
std::optional<Split> Divide(const config::Config& config, int64_t samples,
                            const DivisionKeys& keys);

// Returns for each text the number of the first one like it among the different ones.
std::vector<int64_t> NumbersOfTexts(const std::vector<std::string>& texts);

}  // namespace lockstep
