// DtypeNamed(): finds the number type, such as bfloat16, that an option of a command names.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace lockstep {

// Returns the type that the option --dtype names. The names are those of PyTorch: "float32", "float16", "bfloat16" or
// "float64". If `name` is another name, throws Error (kUsage) with the most similar of these names.
at::ScalarType DtypeNamed(const std::string& name);

}  // namespace lockstep
