// ThreadTuner: decides how many threads of a loader work, from the images a second that earlier numbers of threads
// achieved.
//
// Promise: if training waits for samples although every thread is busy, the tuner tries more threads, up to `most`.
// This helps if the threads wait for a disk, because a waiting thread leaves its core to other threads. If a trial
// gains less than kWorthwhile, the tuner goes back to the number of threads before and does not try again for kPatience
// windows. If training does not wait and threads are idle, the tuner stops one thread.
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
