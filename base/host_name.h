// Returns the name of this machine.
#pragma once

#include <string>

namespace lockstep {

// Returns this machine's host name, or an empty text if the system does not give it.
std::string HostName();

}  // namespace lockstep
