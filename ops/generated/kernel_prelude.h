// The fixed part of the source text of generated kernels: loads, stores, and reductions over threads.
#pragma once

#include <string>

namespace lockstep::ops {

// The name of the function in a kernel's text.
inline constexpr char kKernelName[] = "generated";

// Returns the source text that every kernel's text needs in front of it. It needs no header.
const std::string& KernelPrelude();

// Return the parts of it for dropout, and for reductions over threads. A C++ compiler for CPUs takes them, too, if it
// knows CUDA's words.
const std::string& KeptText();
const std::string& ReductionsText();

}  // namespace lockstep::ops
