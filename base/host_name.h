// The name of this machine.
#pragma once

#include <string>

namespace lockstep {

// Empty where it has no name.
std::string HostName();

}  // namespace lockstep
