// Starting this very command as N ranks through Open MPI's mpirun.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// The command that runs `program` with `arguments` as `ranks` ranks on this machine: the flags that
// it needs in a container, as root, without ssh, and with more ranks than cores, where this is so.
std::vector<std::string> MpirunCommand(int ranks, const std::string& program,
                                       const std::vector<std::string>& arguments);

// The command as a shell would take it.
std::string ShellText(const std::vector<std::string>& command);

// Prints the command to standard error and becomes it. Throws Error (kUsage) where that fails.
[[noreturn]] void Become(const std::vector<std::string>& command);

}  // namespace lockstep
