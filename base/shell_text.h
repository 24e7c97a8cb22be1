// ShellText(): a command as one would type it in a shell.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Words that a shell would change are in quotes.
std::string ShellText(const std::vector<std::string>& command);

}  // namespace lockstep
