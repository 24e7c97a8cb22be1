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

// Returns a data set for benchmarks. A sample consists of random numbers that depend only on the sample's index. Inputs
// are floats in [-1, 1], bytes of any value, or tokens in [0, spec.classes). Targets are random numbers that are valid
// for spec.task.
std::shared_ptr<const Dataset> MakeSynthetic(const SyntheticOptions& options);

}  // namespace lockstep
