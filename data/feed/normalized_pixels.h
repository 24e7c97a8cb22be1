// Normalized: another data set's pixels as the numbers that a model is fed.
//
// Promise: number = pixel * scale[channel] + shift[channel], in float32, rounded after each operation. For
// training on CPUs: loader threads do it while the pixels are in their cache, where the training thread would
// have to stop for it.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

class Normalized : public WrappedDataset {
 public:
  // Keeps a reference to `whole`, whose inputs are pixels; scale and shift have a value for each of its
  // channels.
  Normalized(const Dataset& whole, std::vector<float> scale, std::vector<float> shift);

  const SampleSpec& spec() const override { return spec_; }
  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override;

 private:
  SampleSpec spec_;
  // For each byte of an input, or of a part that repeats: what it is multiplied by, what is added.
  std::vector<float> scale_;
  std::vector<float> shift_;
};

}  // namespace lockstep
