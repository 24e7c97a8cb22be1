// Reads MNIST's files: images and labels in the idx format.
//
// what can fail -> what the caller sees -> the test that shows it (data/arrays/mnist_test.cc)
//   a file that is missing, empty, truncated or of another kind -> Error (kData) with path
//     -> Mnist.RefusesATruncatedFile, Mnist.RefusesAnotherKindOfFile
//   more or fewer labels than images, or a label outside [0, classes)
//     -> Error (kData) with path and, for a label out of range, record
//     -> Mnist.RefusesLabelsThatDoNotMatch, Mnist.RefusesALabelOutOfRange
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/dataset/dataset.h"

namespace lockstep {

struct MnistOptions {
  std::string images{};  // the path of an uncompressed idx3-ubyte file
  std::string labels{};  // the path of an uncompressed idx1-ubyte file; empty: no labels
  int64_t classes = 0;   // the number of classes; 0: ten
};

// Returns a data set with the samples of both files, which are read into memory. Throws Error (kData).
std::shared_ptr<const Dataset> ReadMnist(const MnistOptions& options);

}  // namespace lockstep
