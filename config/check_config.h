// CheckConfig(): checks that a config's values are in range, that its files exist, and that its fields go together.
#pragma once

#include "config/schema/field_check.h"

namespace lockstep {

// Says whether the files that the config names must exist.
enum class Files { kMustExist, kMayBeGone };

// Returns whether the config names validation samples.
bool Validates(const config::Config& config);

// Throws Error (kUsage) that points at the first field that is wrong.
void CheckConfig(const FieldCheck& check, Files files);

}  // namespace lockstep
