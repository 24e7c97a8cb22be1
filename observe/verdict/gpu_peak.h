// PeakFlops(): returns the greatest rate at which a GPU can compute matrix products.
#pragma once

#include <string_view>

namespace lockstep {

enum class Arithmetic { kFp32, kTf32, kBf16, kFp16 };

// Returns the peak of the GPU with this name (NVML's or CUDA's) in FLOP/s, without sparsity and with accumulation in
// FP32; 0 if the GPU is not in the table or does not have this arithmetic. Source: NVIDIA's data sheets.
double PeakFlops(std::string_view gpu, Arithmetic arithmetic);

}  // namespace lockstep
