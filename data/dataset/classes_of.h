// ClassesOf(): the classes of all samples of a data set for classification, in order. No image is decoded for them.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

// Throws the exceptions of dataset.ReadTarget().
inline std::vector<int64_t> ClassesOf(const Dataset& dataset) {
  std::vector<int64_t> classes(dataset.size());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    dataset.ReadTarget(i, reinterpret_cast<std::byte*>(&classes[i]));
  }
  return classes;
}

}  // namespace lockstep
