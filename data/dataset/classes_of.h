// ClassesOf(): returns the classes of all samples of a data set for classification, without decoding images.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

// Returns the class of each sample, in the order of the samples, or Dataset::kNoLabel for a sample without a class.
// Throws any exception that dataset.ReadTarget() throws.
inline std::vector<int64_t> ClassesOf(const Dataset& dataset) {
  std::vector<int64_t> classes(dataset.size());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    dataset.ReadTarget(i, reinterpret_cast<std::byte*>(&classes[i]));
  }
  return classes;
}

}  // namespace lockstep
