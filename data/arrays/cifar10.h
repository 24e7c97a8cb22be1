// Reads CIFAR-10's binary files.
//
// what can fail -> what the caller sees -> the test that shows it (data/arrays/cifar10_test.cc)
//   a file that is missing, empty or truncated, a label outside [0, 10) -> Error (kData) with path and record
//     -> Cifar10.RefusesATruncatedFileAndALabelOutOfRange
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

struct Cifar10Options {
  // Batches of the binary version, with 3,073 bytes for each record.
  std::vector<std::string> files;
};

// Returns a data set that holds its samples in memory. Throws Error (kData).
std::shared_ptr<const Dataset> ReadCifar10(const Cifar10Options& options);

}  // namespace lockstep
