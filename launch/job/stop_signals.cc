#include "launch/job/stop_signals.h"

#include <signal.h>

#include <atomic>

namespace lockstep {
namespace {

constexpr int kSignals[] = {SIGUSR2, SIGTERM, SIGHUP, SIGINT};

std::atomic<bool> trains{false};
std::atomic<bool> stop{false};
std::atomic<bool> interrupt{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void EndBy(int number) {
  signal(number, SIG_DFL);
  raise(number);
}

void OnSignal(int number) {
  if (number == SIGUSR2) {
    stop = true;
  } else if (!trains) {
    EndBy(number);
  } else if (number == SIGTERM || number == SIGHUP) {
    stop = true;
  } else if (interrupt.exchange(true)) {
    EndBy(number);
  }
}

}  // namespace

StopSignals::StopSignals() {
  trains = stop = interrupt = false;
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : kSignals) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    // What is ignored (a shell's background job's SIGINT) stays so.
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
}

StopRequest StopSignals::Asked() {
  if (!trains.load(std::memory_order_relaxed)) trains = true;
  if (interrupt.load(std::memory_order_relaxed)) return StopRequest::kInterrupt;
  return stop.load(std::memory_order_relaxed) ? StopRequest::kStop : StopRequest::kNone;
}

bool StopSignals::TakeTerm() {
  if (!trains) return false;
  stop = true;
  return true;
}

}  // namespace lockstep
