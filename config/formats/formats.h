// The formats of data that a config can name (config/formats/formats.inc), and what its samples consist of.
#pragma once

#include "config/formats/format.h"

namespace lockstep {

// Returns the format of `data`. Throws BugError if formats.inc has no line for it.
const Format& FormatOf(const config::Data& data);

bool HoldsTokens(const config::Data& data);  // whether inputs are token numbers
bool PredictsTokens(const config::Data& data);
bool HoldsPixels(const config::Data& data);

}  // namespace lockstep
