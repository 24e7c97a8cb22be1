// CheckConfig(): checks that a config's values are in range, that its files exist, and that its fields go together.
#pragma once

#include "trainer/config/schema/field_check.h"

namespace lockstep {

// Whether the files that the config names have to be there.
enum class Files { kMustExist, kMayBeGone };

// Throws Error (kUsage), which points at the first field that is wrong.
void CheckConfig(const FieldCheck& check, Files files);

}  // namespace lockstep
