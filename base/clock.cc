#include "base/clock.h"

#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace lockstep {

double SecondsSinceBoot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double UnixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double ThreadCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double ProcessStartSeconds() {
  std::ifstream file("/proc/self/stat");
  std::string stat;
  std::getline(file, stat);
  // The program's name, in parentheses, may hold spaces: fields are counted from behind it, where
  // field 3 comes next. Field 22 is the start in clock ticks since boot (proc(5)).
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0;
  fields >> ticks;
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace lockstep
