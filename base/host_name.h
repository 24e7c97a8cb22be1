// What this machine is called.
#pragma once

#include <string>

namespace lockstep {

// Empty where it has no name.
std::string HostName();

}  // namespace lockstep
