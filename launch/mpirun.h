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

// Runs mpirun's `command` and returns the exit status that the job owes its user: the ranks', or
// kPeer where a signal other than SIGINT killed a rank or mpirun itself, for which mpirun has a status of its own. Passes
// on the signals that it gets, and ends mpirun when it is killed itself. `output`: gets what the
// ranks print; null: it goes where this process's does. Throws Error (kUsage) where mpirun cannot be
// started.
int Supervise(const std::vector<std::string>& command, std::string* output);

}  // namespace lockstep
