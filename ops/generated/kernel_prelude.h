// The fixed part of the source text of generated kernels: loads, stores, and reductions over threads.
#pragma once

#include <string>

namespace lockstep::ops {

// The name of the function in a kernel's text.
inline constexpr char kKernelName[] = "generated";

// Returns the source text that every kernel's text needs in front of it. It needs no header.
const std::string& KernelPrelude();

// Returns the part of it that is about dropout, which a C++ compiler for CPUs takes, too.
const std::string& KeptText();

}  // namespace lockstep::ops
