// lockstep export and average: weights alone, for other programs.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Writes the mean of the weights of `sources` (ckpt/weights.h) to a safetensors file, under PyTorch's names.
// `dtype`: float32, bfloat16 or float16, of what is in floating point; empty: as they are. Throws Error
// (kCheckpoint).
void ExportWeights(const std::vector<std::string>& sources, const std::string& output,
                   const std::string& dtype);

}  // namespace lockstep
