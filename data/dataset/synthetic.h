// Makes synthetic samples, for benchmarks.
#pragma once

#include <cstdint>
#include <memory>

#include "data/dataset/dataset.h"

namespace lockstep {

struct SyntheticOptions {
  SampleSpec spec;
  int64_t samples = 1;
};

// Returns a data set for measurements whose samples are random numbers that depend only on the sample's number. Inputs
// are drawn from [-1, 1), and bytes and tokens from all possible values.
std::shared_ptr<const Dataset> MakeSynthetic(const SyntheticOptions& options);

}  // namespace lockstep
