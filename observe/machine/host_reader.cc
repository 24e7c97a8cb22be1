#include "observe/machine/host_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/cores.h"

namespace lockstep {

int64_t ProcessMemory(const std::string& proc) {
  int64_t all_pages = 0;
  int64_t resident_pages = 0;
  std::ifstream(proc + "/self/statm") >> all_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

HostReader::HostReader(std::string proc, std::string cgroups)
    : proc_(std::move(proc)), cgroups_(std::move(cgroups)), last_(ReadCpuTime()) {}

HostReader::CpuTime HostReader::ReadCpuTime() const {
  CpuTime time;
  std::ifstream file(proc_ + "/stat");
  // The file has the line "cpu  USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ..." for all cores together, and then
  // such a line for each core: "cpu0 ...", "cpu1 ...".
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    if (line.size() > 3 && std::isdigit(static_cast<unsigned char>(line[3])) != 0) {
      ++time.cores;
      continue;
    }
    std::istringstream numbers(line.substr(3));
    double ticks = 0;
    constexpr int kIdle = 3;
    constexpr int kWaitsForDisk = 4;
    constexpr int kFields = 8;  // the later fields are not read: USER and NICE include their ticks
    for (int field = 0; field < kFields && numbers >> ticks; ++field) {
      time.all += ticks;
      if (field != kIdle && field != kWaitsForDisk) time.busy += ticks;
    }
  }
  return time;
}

namespace {

// Returns the size that the line "NAME: ... kB" of a file has, in bytes; 0 if there is no such line.
double BytesIn(const std::string& path, std::string_view name) {
  constexpr double kKibibyte = 1024;
  std::ifstream file(path);
  for (std::string found, rest; file >> found && std::getline(file, rest);) {
    if (found == name) return std::strtod(rest.c_str(), nullptr) * kKibibyte;
  }
  return 0;
}

}  // namespace

HostReading HostReader::Read() {
  HostReading reading;
  const CpuTime now = ReadCpuTime();
  reading.cores = now.cores;
  if (now.all > last_.all) {
    // The kernel's counters of idle time can fall. The busy time then seems to grow faster than the whole time, so the
    // quotient is limited to 1.
    reading.cpu_use = std::clamp((now.busy - last_.busy) / (now.all - last_.all), 0.0, 1.0);
  }
  last_ = now;

  const double total = BytesIn(proc_ + "/meminfo", "MemTotal:");
  const double available = BytesIn(proc_ + "/meminfo", "MemAvailable:");
  std::ifstream groups(proc_ + "/self/cgroup");
  const MemoryOfGroup group = TightestGroup(groups, cgroups_);
  const bool is_limited = group.limit < total;
  reading.memory_total = static_cast<int64_t>(is_limited ? group.limit : total);
  reading.memory_used = static_cast<int64_t>(is_limited ? group.used : total - available);

  reading.process_memory = ProcessMemory(proc_);
  reading.process_anonymous = static_cast<int64_t>(BytesIn(proc_ + "/self/status", "RssAnon:"));
  return reading;
}

}  // namespace lockstep
