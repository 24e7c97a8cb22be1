// Normalized: a data set that converts the pixels of another data set to the numbers that the model gets.
//
// Promise: number = pixel * scale[channel] + shift[channel], in float32, rounded after each operation. Runs on CPUs use
// this data set unless the pixels are augmented: the loader threads convert the pixels while the pixels are in the
// CPU's cache, so the training thread spends no time on the conversion.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

class Normalized : public WrappedDataset {
 public:
  // Keeps a reference to `whole`, whose inputs must be pixels. `scale` and `shift` have one value for each channel.
  Normalized(const Dataset& whole, std::vector<float> scale, std::vector<float> shift);

  const SampleSpec& spec() const override { return spec_; }
  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override;

 private:
  SampleSpec spec_;
  // The factor and the summand for each byte of one image row if the channels are last, and otherwise for each byte of
  // a whole input.
  std::vector<float> scale_;
  std::vector<float> shift_;
};

}  // namespace lockstep
