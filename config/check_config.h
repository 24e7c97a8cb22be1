// CheckConfig(): checks that a config's values are in range, that its files exist, and that its fields fit together.
//
// Kernels compute in float32. A number with a decimal point must therefore be 0 or one that float32 holds, unless its
// field has the mark float64 (config/schema/options.proto); so must what is computed of several fields before a kernel
// gets it: the scaled learning rate, and the scale and shift of pixels.
#pragma once

#include "config/schema/field_check.h"

namespace lockstep {

// Says whether the files that the config names must exist.
enum class Files { kMustExist, kMayBeGone };

// Returns whether the config sets aside samples for validation: validation files, a validation fraction, or folds.
bool Validates(const config::Config& config);

// Checks the config in `check`. Throws Error (kUsage) that points at the first field that is wrong.
void CheckConfig(const FieldCheck& check, Files files);

}  // namespace lockstep
