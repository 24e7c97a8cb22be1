// For the readers of small formats: functions that read a whole file into memory, and that make a data set of samples
// in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

// Returns the bytes of the file `path`. Throws Error (kData) if the file cannot be read or is empty.
std::string ReadWholeFile(const std::string& path);

// Returns a data set of samples in memory. `inputs` holds one input of spec.bytes() bytes for each sample, one after
// the other, and `targets` holds one target of spec.target_bytes() bytes for each sample. `files` are the files that
// the samples were read from, to which Contents() adds the samples.
std::shared_ptr<const Dataset> MakeInMemory(SampleSpec spec, std::vector<std::byte> inputs,
                                            std::vector<std::byte> targets,
                                            DataContents files = {});

// Returns the bytes of `numbers`.
template <typename Number>
std::vector<std::byte> BytesOf(const std::vector<Number>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

}  // namespace lockstep
