#include "launch/job/early_signals.h"

#include <initializer_list>

#include "launch/job/early_environment.h"

namespace lockstep {
namespace {

sigset_t mask_at_start;

void BeforeLibraries(int /*count*/, char** arguments, char** environment) {
  // StartWithEnvironment() is called before the signals are blocked. Otherwise the program that StartWithEnvironment()
  // executes would inherit the blocked signals, and its MaskAtStart() would wrongly say that the parent had blocked
  // them.
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
