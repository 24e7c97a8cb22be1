// Says how many cores and how much memory this process may use. In a container or a batch job this is less than the
// machine has.
#pragma once

#include <istream>
#include <limits>
#include <string>

namespace lockstep {

// The cores that its affinity mask allows, or its control groups' CPU time if that is less, rounded
// up; at least 1.
int UsableCores();

// The cores' worth of CPU time that this process's control groups allow it; infinity: as much as there is.
double CoresOfTime();

// The cores' worth of CPU time that a process gets whose /proc/PID/cgroup is `groups`, where the
// control groups lie in `root` (versions 1 and 2; of a group and all that it lies in the least);
// infinity: as much as there is.
double CgroupCores(std::istream& groups, const std::string& root);

// Likewise the bytes of memory; infinity: as many as there are.
double BytesOfMemory();
double CgroupMemory(std::istream& groups, const std::string& root);

// The group that has that limit.
struct MemoryOfGroup {
  double limit = std::numeric_limits<double>::infinity();  // bytes
  double used = 0;  // bytes, without files' pages that it can give back
};
MemoryOfGroup TightestGroup(std::istream& groups, const std::string& root);

}  // namespace lockstep
