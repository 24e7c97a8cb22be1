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

// Samples drawn from their number: inputs from [-1, 1), bytes and tokens from all there are, and
// targets. For measuring.
std::shared_ptr<const Dataset> MakeSynthetic(const SyntheticOptions& options);

}  // namespace lockstep
