// The names of number types (such as bfloat16) in the options of commands.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace lockstep {

// Returns the type that the option --dtype names. The names are those of PyTorch: "float32", "float16", "bfloat16" or
// "float64". If `name` is another name, throws Error (kUsage) with the most similar of these names.
at::ScalarType DtypeNamed(const std::string& name);

}  // namespace lockstep
