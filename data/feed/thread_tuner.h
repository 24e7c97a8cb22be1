// ThreadTuner: how many threads a loader lets work, from what the last ones achieved.
//
// Promise: where samples are waited for although every thread is busy, more threads are tried, up to
// `most`: threads that wait for a disk leave their cores to others. What a trial brings less than
// kWorthwhile by is taken back, and not tried again for kPatience windows. Where nobody waits and
// threads idle, one is laid off.
//
// Tests: data/feed/thread_tuner_test.cc, against machines with few cores, slow disks and slow models.
#pragma once

#include <cstdint>

namespace lockstep {

class ThreadTuner {
 public:
  static constexpr double kWorthwhile = 1.1;  // in samples a second
  static constexpr int kPatience = 20;

  // What `threads()` threads did for some time.
  struct Window {
    double seconds;
    int64_t samples;   // that were read
    double reading_s;  // spent in Dataset::Read, of all threads together
    double waiting_s;  // that the next batch was waited for
  };

  // Begins with `threads`; 1 <= threads <= most.
  ThreadTuner(int threads, int most);

  int threads() const { return threads_; }

  // Takes account of what happened since the last call.
  void Add(const Window& window);

 private:
  void TryMore(double rate);

  int most_;
  int threads_;
  bool trying_ = false;
  int threads_before_ = 0;  // the trial, and what they achieved
  double rate_before_ = 0;
  int enough_;        // more have been tried in vain
  int patience_ = 0;  // windows until that may have changed
};

}  // namespace lockstep
