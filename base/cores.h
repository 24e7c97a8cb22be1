// Says how many cores and how much memory this process may use. In a container or a batch job a process may often use
// only a part of the machine's cores and memory.
#pragma once

#include <istream>
#include <limits>
#include <string>

namespace lockstep {

// Returns how many cores this process may use: the number of cores in its affinity mask, or the number of cores whose
// CPU time its control groups allow (rounded up), if that is less. The result is at least 1.
int UsableCores();

// Returns how much CPU time the control groups of this process allow, in cores (2.5 means 2.5 s of CPU time per
// second). Returns infinity if there is no limit.
double CoresOfTime();

// Returns how many cores the control groups allow a process whose /proc/PID/cgroup has the content `groups`, or
// infinity if there is no limit. `root` is the folder of the control groups (version 1 or 2). If the process's group
// and the groups above it have several limits, the smallest one applies.
double CgroupCores(std::istream& groups, const std::string& root);

// BytesOfMemory() returns how many bytes of memory the control groups of this process allow, or infinity (in cgroup v1
// about 2^63) if there is no limit. CgroupMemory() returns this number for a process whose /proc/PID/cgroup has the
// content `groups`; `root` is the folder of the control groups.
double BytesOfMemory();
double CgroupMemory(std::istream& groups, const std::string& root);

// The memory limit and the memory use of a control group. TightestGroup() returns the limit and the use of the group
// with the smallest limit, among the process's group and all groups above it. If no group has a limit, TightestGroup()
// returns the limit infinity and the use 0.
struct MemoryOfGroup {
  double limit = std::numeric_limits<double>::infinity();  // bytes
  double used = 0;  // bytes, without inactive page cache, which the kernel can reclaim
};
MemoryOfGroup TightestGroup(std::istream& groups, const std::string& root);

}  // namespace lockstep
