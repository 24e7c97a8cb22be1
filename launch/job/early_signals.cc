#include "launch/job/early_signals.h"

#include <initializer_list>

namespace lockstep {
namespace {

sigset_t mask_at_start;

void HoldSignals() {
  sigset_t early;
  sigemptyset(&early);
  for (const int number : {SIGUSR2, SIGTERM, SIGHUP, SIGINT}) sigaddset(&early, number);
  sigprocmask(SIG_BLOCK, &early, &mask_at_start);
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const hold_signals)() = &HoldSignals;

}  // namespace

const sigset_t& MaskAtStart() { return mask_at_start; }

void LetEarlySignalsCome() { pthread_sigmask(SIG_SETMASK, &mask_at_start, nullptr); }

}  // namespace lockstep
