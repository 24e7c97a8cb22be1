#include "launch/job/early_environment.h"

#include <limits.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::string_view kOfTheUser[] = {"OMP_WAIT_POLICY=", "GOMP_SPINCOUNT="};
char spin_count[] = "GOMP_SPINCOUNT=1000";
constexpr int kMostVariables = 4096;

}  // namespace

// Nothing is initialised yet, the C++ library included: only what the kernel does is used.
void StartWithEnvironment(char** arguments, char** environment) {
  // The kernel has started the loader, and would do so again.
  if (getauxval(AT_BASE) == 0) return;
  char* extended[kMostVariables + 2];
  int count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (count == kMostVariables) return;
    for (const std::string_view name : kOfTheUser) {
      if (strncmp(environment[count], name.data(), name.size()) == 0) return;
    }
    extended[count] = environment[count];
  }
  extended[count] = spin_count;
  extended[count + 1] = nullptr;
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (length <= 0) return;
  program[length] = '\0';
  execve(program, arguments, extended);
}

}  // namespace lockstep
