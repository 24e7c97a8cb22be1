// FormatOf(): returns the data format that a config names (config/formats/formats.inc). The other functions answer
// questions about the samples of this format.
#pragma once

#include "config/formats/format.h"

namespace lockstep {

// Returns the format of `data`. Throws BugError if formats.inc has no line for the format.
const Format& FormatOf(const config::Data& data);

bool HoldsTokens(const config::Data& data);  // whether inputs are token ids
bool PredictsTokens(const config::Data& data);
bool HoldsPixels(const config::Data& data);

}  // namespace lockstep
