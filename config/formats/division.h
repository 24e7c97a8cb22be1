// Divide(): divides the samples of the training files into training samples and held-back validation samples, as
// data.validation_fraction or data.folds of the config says.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/config.pb.h"
#include "data/dataset/split.h"

namespace lockstep {

// The keys that the division may depend on. Each function is called only if the division needs it.
struct DivisionKeys {
  std::function<std::vector<int64_t>()> classes;  // the class of each sample; null: no classes
  std::function<std::vector<int64_t>()>
      groups;  // the number of each sample's group (data.folds.group)
};

// Returns the training samples and the held-back ones; nothing if no samples are held back. Throws Error (kUsage), and
// passes on any exception of `keys`.
std::optional<Split> Divide(const config::Config& config, int64_t samples,
                            const DivisionKeys& keys);

// Numbers the distinct texts from 0, in the order of their first occurrence, and returns for each of `texts` its
// number.
std::vector<int64_t> NumbersOfTexts(const std::vector<std::string>& texts);

}  // namespace lockstep
