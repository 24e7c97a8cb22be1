// The name of this machine.
#pragma once

#include <string>

namespace lockstep {

// Returns this machine's name; empty if it has none.
std::string HostName();

}  // namespace lockstep
