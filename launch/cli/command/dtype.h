// The names of number types (such as bfloat16) in the options of commands.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace lockstep {

// Returns the type that --dtype names in the way of PyTorch: "float32", "float16", "bfloat16" or "float64". For any
// other name throws Error (kUsage) with the most similar of these names.
at::ScalarType DtypeNamed(const std::string& name);

}  // namespace lockstep
