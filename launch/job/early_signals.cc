#include "launch/job/early_signals.h"

#include <initializer_list>

#include "launch/job/early_environment.h"

namespace lockstep {
namespace {

sigset_t mask_at_start;

void BeforeLibraries(int /*count*/, char** arguments, char** environment) {
  // Before signals are held, or the program that is started would take them for held by its parent.
  StartWithEnvironment(arguments, environment);
  sigset_t early;
  sigemptyset(&early);
  for (const int number : {SIGUSR2, SIGTERM, SIGHUP, SIGINT}) sigaddset(&early, number);
  sigprocmask(SIG_BLOCK, &early, &mask_at_start);
}

[[gnu::section(".preinit_array"),
  gnu::used]] void (*const before_libraries)(int, char**, char**) = &BeforeLibraries;

}  // namespace

const sigset_t& MaskAtStart() { return mask_at_start; }

void LetEarlySignalsCome() { pthread_sigmask(SIG_SETMASK, &mask_at_start, nullptr); }

}  // namespace lockstep
