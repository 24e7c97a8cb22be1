// Says how many cores and how much memory this process may use. In a container or a batch job this is less than the
// machine has.
#pragma once

#include <istream>
#include <limits>
#include <string>

namespace lockstep {

// Returns how many cores this process may use: the number of cores in its affinity mask, or the CPU time of its control
// groups (rounded up) if that is less. At least 1.
int UsableCores();

// Returns how many cores' time the control groups of this process allow; infinity if there is no limit.
double CoresOfTime();

// Returns how many cores' time a process gets whose /proc/PID/cgroup has the content `groups`; infinity if there is no
// limit. `root` is the folder of the control groups (version 1 or 2). The smallest limit of a group and of all groups
// above it counts.
double CgroupCores(std::istream& groups, const std::string& root);

// Returns how many bytes of memory the control groups of this process allow; infinity if there is no limit.
double BytesOfMemory();
double CgroupMemory(std::istream& groups, const std::string& root);

// The group that has that limit.
struct MemoryOfGroup {
  double limit = std::numeric_limits<double>::infinity();  // bytes
  double used = 0;  // bytes, without files' pages that it can give back
};
MemoryOfGroup TightestGroup(std::istream& groups, const std::string& root);

}  // namespace lockstep
