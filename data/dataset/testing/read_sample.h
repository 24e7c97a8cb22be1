// For tests: functions that read one sample of a data set in epoch 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

// Returns the input of sample `index`, which must be float32, and writes the sample's class to `label`.
inline std::vector<float> InputOf(const Dataset& dataset, int64_t index, int64_t* label) {
  std::vector<float> input(dataset.spec().bytes() / sizeof(float));
  dataset.Read(index, 0, reinterpret_cast<std::byte*>(input.data()),
               reinterpret_cast<std::byte*>(label));
  return input;
}

// Writes the input of sample `index` to `image`, which must be large enough, and returns the sample's class.
inline int64_t ReadImage(const Dataset& dataset, int64_t index, std::vector<std::byte>& image) {
  int64_t label = -2;
  dataset.Read(index, 0, image.data(), reinterpret_cast<std::byte*>(&label));
  return label;
}

}  // namespace lockstep
