// ConfigTemplate(): returns a complete example config. Every field has its default value, below its comment from
// config/schema/.
#pragma once

#include <string>

namespace lockstep {

std::string ConfigTemplate();

}  // namespace lockstep
