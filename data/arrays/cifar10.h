// Reads CIFAR-10's binary files.
//
// what can fail -> what the caller sees -> the test that shows it (data/arrays/cifar10_test.cc)
//   a file that is missing, empty or truncated; a label outside [0, 10)
//     -> Error (kData) with path and, for a label, record
//     -> Cifar10.RefusesATruncatedFileAndALabelOutOfRange
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

// The size of one record in bytes: one byte for the label, and one byte for each of the three colours of 32 x 32
// pixels.
inline constexpr int64_t kCifar10RecordBytes = 1 + 3 * 32 * 32;

struct Cifar10Options {
  // The paths of the files of CIFAR-10's binary version, such as data_batch_1.bin.
  std::vector<std::string> files;
};

// Returns a data set with the samples of options.files, which are read into memory. Throws Error (kData).
std::shared_ptr<const Dataset> ReadCifar10(const Cifar10Options& options);

}  // namespace lockstep
