#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>

namespace lockstep {
namespace {

constexpr double kAll = std::numeric_limits<double>::infinity();

// Returns how many cores a cpu.max file of cgroup v2 allows. The file contains "QUOTA PERIOD" in microseconds, for
// example "200000 100000", or "max 100000" if there is no limit.
double QuotaOf(const std::string& path) {
  std::ifstream file(path);
  double quota = 0;
  double period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? quota / period : kAll;
}

// Returns how many cores the group in `folder` allows in cgroup v1, which has the quota and the period in two files, in
// microseconds. A quota of -1 means no limit.
double OldQuotaOf(const std::string& folder) {
  double quota = 0;
  double period = 0;
  std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
  std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : kAll;
}

// Returns the number that the file contains, in bytes, or infinity if the file contains "max" or cannot be read. (In
// cgroup v1 a group without a limit has a number of about 2^63.)
double BytesIn(const std::string& path) {
  std::ifstream file(path);
  double bytes = 0;
  return file >> bytes ? bytes : kAll;
}

// Returns the number after `name` in a file whose lines are "NAME NUMBER", or 0 if there is no such line.
double FieldOf(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  double value = 0;
  for (std::string word; file >> word >> value;) {
    if (word == name) return value;
  }
  return 0;
}

// Returns how many bytes the group in `folder` uses, without its inactive page cache, or 0 if this is not known. `old`
// means cgroup v1.
double UsedOf(const std::string& folder, bool old) {
  const double all = BytesIn(folder + (old ? "/memory.usage_in_bytes" : "/memory.current"));
  const double files =
      FieldOf(folder + "/memory.stat", old ? "total_inactive_file" : "inactive_file");
  return all < kAll ? std::max(0.0, all - files) : 0;
}

// Returns the smallest limit of the groups to which `groups` (a /proc/PID/cgroup file) assigns the process for
// `controller`, and of all groups above them. limit(folder, old) returns the limit of the group in `folder`; `old`
// means cgroup v1.
template <typename Limit>
double LeastOf(std::istream& groups, const std::string& root, const std::string& controller,
               const Limit& limit) {
  double least = kAll;
  for (std::string line; std::getline(groups, line);) {
    // A line is "0::/a/b", or in cgroup v1 "4:cpu,cpuacct:/a/b".
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool old = controllers != ",,";
    if (old && controllers.find("," + controller + ",") == std::string::npos) continue;
    const std::string base = old ? root + "/" + controller : root;
    // The loop ends with the root folder. In a container `path` may be valid only on the host, and the container's own
    // group is then the root folder.
    for (std::string path = line.substr(second + 1);;
         path.resize(path.find('/') == std::string::npos ? 0 : path.rfind('/'))) {
      const std::string folder = base + (path == "/" ? "" : path);
      least = std::min(least, limit(folder, old));
      if (path.empty()) break;
    }
  }
  return least;
}

}  // namespace

double CgroupCores(std::istream& groups, const std::string& root) {
  return LeastOf(groups, root, "cpu", [](const std::string& folder, bool old) {
    return old ? OldQuotaOf(folder) : QuotaOf(folder + "/cpu.max");
  });
}

double CgroupMemory(std::istream& groups, const std::string& root) {
  return TightestGroup(groups, root).limit;
}

MemoryOfGroup TightestGroup(std::istream& groups, const std::string& root) {
  MemoryOfGroup tightest;
  LeastOf(groups, root, "memory", [&](const std::string& folder, bool old) {
    const double limit = BytesIn(folder + (old ? "/memory.limit_in_bytes" : "/memory.max"));
    if (limit < tightest.limit) tightest = {limit, UsedOf(folder, old)};
    return limit;
  });
  return tightest;
}

double BytesOfMemory() {
  std::ifstream groups("/proc/self/cgroup");
  return CgroupMemory(groups, "/sys/fs/cgroup");
}

double CoresOfTime() {
  std::ifstream groups("/proc/self/cgroup");
  return CgroupCores(groups, "/sys/fs/cgroup");
}

int UsableCores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof(mask), &mask);
  const double cores = std::min<double>(CPU_COUNT(&mask), CoresOfTime());
  return std::max(1, static_cast<int>(std::ceil(cores)));
}

}  // namespace lockstep
