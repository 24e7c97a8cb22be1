// ShellText(): returns a command as a user would type it in a shell.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Returns the words of `command` with spaces between them. Words that a shell would interpret are quoted.
std::string ShellText(const std::vector<std::string>& command);

}  // namespace lockstep
