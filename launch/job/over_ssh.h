// Runs ssh for the mpirun of Open MPI 5, and says to which machine the connection has ended.
//
// Promise: if ssh fails (status 255), the supervisor learns the machine's name before mpirun knows of it. mpirun itself
// ends within milliseconds and with status 255. In more than half of the trials (12, Open MPI 5.0.11) it said nothing.
//
// Protocol:
//   1. with --hosts, mpirun gets this program with the command kOverSsh for its ssh (PRTE_MCA_plm_ssh_agent)
//   2. the command runs ssh with the words that mpirun gives it, and waits for its end
//   3. if ssh has failed, the command writes LostLine() to standard error, which is mpirun's. It ends with ssh's status
//   4. the relay takes the line out of the output (launch/job/relay.h). The supervisor uses it if the job has failed and
//      no rank has said why (launch/job/supervisor.h)
//
// what can fail -> what the caller sees -> the test that shows it (launch/job/over_ssh_test.cc, tests/network_test.py)
//   ssh cannot be started -> Error (kUsage) -> launch/machine/child_process_test.cc
//   mpirun is killed -> the kernel ends ssh -> test_mpirun_is_killed
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr char kOverSsh[] = "over-ssh";

// Returns the value of PRTE_MCA_plm_ssh_agent with which mpirun runs `ssh`, which may have arguments, through
// `program`, the path of this program. Returns an empty string if mpirun could not read such a value: mpirun divides it
// at spaces and colons.
std::string AgentThrough(const std::string& program, const std::string& ssh);

// Runs an ssh command to its end, and returns its exit status. Throws Error (kUsage).
int RunOverSsh(const std::vector<std::string>& words);

// Returns the machine of an ssh command: the first word that is no option and no option's value. Returns an empty string
// if there is none.
std::string MachineOf(const std::vector<std::string>& words);

// Returns the line that says that the connection to `machine` has ended.
std::string LostLine(std::string_view machine);

// Returns whether `beginning`, the beginning of a line, may become such a line.
bool MayBeLostLine(std::string_view beginning);

// Returns the machine in such a line; an empty string if `line` is another.
std::string MachineInLostLine(std::string_view line);

}  // namespace lockstep
