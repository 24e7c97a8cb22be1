// Makes the text of a config to start from: every field has its default, and above it stands its comment from
// config/schema/.
#pragma once

#include <string>

namespace lockstep {

std::string ConfigTemplate();

}  // namespace lockstep
