// A config to start from: every field at its default, each under its comment from trainer/config/schema/.
#pragma once

#include <string>

namespace lockstep {

std::string ConfigTemplate();

}  // namespace lockstep
