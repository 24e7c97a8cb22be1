// What the readers of small formats share: whole files, and a data set that lies in memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace lockstep {

// The file's bytes. Throws Error (kData) when it cannot be read or is empty.
std::string ReadWholeFile(const std::string& path);

// `inputs` holds labels.size() inputs of spec.bytes() bytes, one after the other.
std::shared_ptr<const Dataset> MakeInMemory(SampleSpec spec, std::vector<std::byte> inputs,
                                            std::vector<int64_t> labels);

}  // namespace lockstep
