#include "launch/job/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "launch/job/early_signals.h"

namespace lockstep {
namespace {

constexpr int kSignals[] = {SIGUSR2, SIGTERM, SIGHUP, SIGINT};

std::atomic<bool> trains{false};
std::atomic<bool> stop{false};
std::atomic<bool> interrupt{false};
std::atomic<int> demanded{0};  // the first SIGTERM, SIGHUP or SIGINT that came; 0: none
std::atomic<int> demands{0};   // how many SIGTERM and SIGINT signals have come
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void EndBy(int number) {
  signal(number, SIG_DFL);
  raise(number);
}

void OnSignal(int number) {
  if (number == SIGALRM) {
    if (!trains) EndBy(demanded);
    return;
  }
  const bool is_demand = number == SIGTERM || number == SIGINT;
  if (is_demand && demands.fetch_add(1) > 0) EndBy(number);
  (number == SIGINT ? interrupt : stop) = true;
}

// Handles the signals in a process that is no rank. At the first SIGTERM, SIGHUP or SIGINT this function sets an alarm
// for kPatienceS seconds later. The alarm ends this process unless the process trains by then. (A rank needs no alarm,
// because another process ends the rank.)
void OnSignalAlone(int number) {
  int none = 0;
  if (number != SIGUSR2 && number != SIGALRM && demanded.compare_exchange_strong(none, number)) {
    alarm(kPatienceS);
  }
  OnSignal(number);
}

}  // namespace

StopSignals::StopSignals(bool is_rank) {
  trains = stop = interrupt = false;
  demanded = demands = 0;
  struct sigaction action {};
  action.sa_handler = is_rank ? OnSignal : OnSignalAlone;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  if (!is_rank) sigaction(SIGALRM, &action, nullptr);
  for (const int number : kSignals) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    // A signal that is ignored, such as SIGINT in a shell's background job, stays ignored.
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
