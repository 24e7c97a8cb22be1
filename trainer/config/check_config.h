// Whether a config can be meant as it stands: ranges, files, and what does not go together.
#pragma once

#include "trainer/config/schema/field_check.h"

namespace lockstep {

// Whether the files that the config names have to be there.
enum class Files { kMustExist, kMayBeGone };

// Throws Error (kUsage), which points at the first field that is wrong.
void CheckConfig(const FieldCheck& check, Files files);

}  // namespace lockstep
