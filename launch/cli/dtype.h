// The names of number types (such as bfloat16) in the options of commands.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace lockstep {

// The one of --dtype, as PyTorch calls it: "float32", "float16", "bfloat16" or "float64". Throws Error (kUsage) for any
// other name, with the nearest of these.
at::ScalarType DtypeNamed(const std::string& name);

}  // namespace lockstep
