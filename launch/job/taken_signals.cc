#include "launch/job/taken_signals.h"

#include <algorithm>
#include <ctime>

namespace lockstep {

TakenSignals::TakenSignals(std::initializer_list<int> signals) {
  sigemptyset(&taken_);
  signal(SIGCHLD, SIG_DFL);
  sigaddset(&taken_, SIGCHLD);
  for (const int number : signals) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&taken_, number);
  }
  pthread_sigmask(SIG_BLOCK, &taken_, nullptr);
}

int TakenSignals::Wait(double seconds) const {
  const timespec time{.tv_sec = static_cast<time_t>(seconds),
                      .tv_nsec = static_cast<long>((seconds - static_cast<time_t>(seconds)) * 1e9)};
  return std::max(0, sigtimedwait(&taken_, nullptr, &time));
}

}  // namespace lockstep
