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

// Uses only system calls and simple functions of the C library, because no library is initialised when this function
// runs, not even the C++ library.
void StartWithEnvironment(char** arguments, char** environment) {
  // AT_BASE is 0 if the user started the dynamic loader as the program. /proc/self/exe then names the loader, so that
  // execve() below would start the loader with the wrong arguments.
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
