#include "data/feed/thread_tuner.h"

#include <algorithm>

namespace lockstep {
namespace {

// Training counts as waiting if it stands still for more than this share of a window.
constexpr double kWaits = 0.01;
// The threads count as busy if they spend more than this share of their time in reading.
constexpr double kBusy = 0.9;
// The tuner stops one thread only if the number of remaining threads is then more than kSpare times the mean number of
// busy threads.
constexpr double kSpare = 1.25;

}  // namespace

ThreadTuner::ThreadTuner(int threads, int most) : most_(most), threads_(threads), enough_(most) {}

void ThreadTuner::Add(const Window& window) {
  const double rate = static_cast<double>(window.samples) / window.seconds;
  const double busy = window.reading_s / window.seconds;  // the mean number of busy threads
  if (trying_) {
    trying_ = false;
    if (rate < kWorthwhile * rate_before_) {
      threads_ = enough_ = threads_before_;
      patience_ = kPatience;
      return;
    }
  }
  if (patience_ > 0 && --patience_ == 0) enough_ = most_;
  if (window.waiting_s > kWaits * window.seconds) {
    if (busy > kBusy * threads_ && threads_ < enough_) TryMore(rate);
  } else if (kSpare * busy < threads_ - 1) {
    --threads_;
  }
}

void ThreadTuner::TryMore(double rate) {
  trying_ = true;
  threads_before_ = threads_;
  rate_before_ = rate;
  threads_ = std::min(threads_ + (threads_ + 1) / 2, enough_);
}

}  // namespace lockstep
