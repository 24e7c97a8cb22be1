// Reads arrays from NumPy's .npy files.
//
// what can fail -> what the caller sees -> the test that shows it (data/arrays/npy_test.cc)
//   a file that is missing, empty or truncated; an array of another type, order or shape; fewer or more
//   numbers than its header says -> Error (kData) with path -> Npy.RefusesWhatItCannotRead
//   a label that is no integer or outside [0, classes), of several labels one that is not 0 or 1
//     -> Error (kData) with path and record -> Npy.RefusesTargetsThatDoNotFit
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/dataset/dataset.h"

namespace lockstep {

struct NpyOptions {
  std::string inputs;     // [samples, ...]
  std::string targets{};  // [samples] or [samples, numbers]; empty: the targets are unknown
  Task task = Task::kClassification;
  int64_t classes = 0;  // 0: the greatest label + 1, or the number of numbers in one target
  bool pixels = false;  // whether the inputs are images of unsigned bytes
};

// Returns a data set of arrays that NumPy saved. They may have any little-endian float or integer type, or booleans.
// Values become float32, but pixels stay bytes. The inputs are mapped into memory and not read; the targets are read
// and checked. Throws Error (kData).
std::shared_ptr<const Dataset> MapNpy(const NpyOptions& options);

}  // namespace lockstep
