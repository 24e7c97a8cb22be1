// ThreadTuner: chooses how many of a loader's threads take work. It compares the rates, in samples a second, that were
// measured with different numbers of threads.
//
// Promise: if training waits for samples although every thread is busy, the tuner tries more threads, up to `most`.
// More threads help if the threads wait for a disk, because a waiting thread leaves its core to other threads. If a
// trial of more threads does not raise the samples a second by the factor kWorthwhile, the tuner goes back to the
// previous number of threads, and tries no larger number for kPatience windows (a window is the time between two calls
// of Add()). If training does not wait and threads are idle, the tuner stops one thread.
//
// Tests: data/feed/thread_tuner_test.cc, with simulated machines that have few cores, slow disks or slow models.
#pragma once

#include <cstdint>

namespace lockstep {

class ThreadTuner {
 public:
  // The least factor by which a trial of more threads must raise the number of samples a second.
  static constexpr double kWorthwhile = 1.1;
  static constexpr int kPatience = 20;

  // The work of threads() threads during a period of time.
  struct Window {
    double seconds;
    int64_t samples;   // how many samples were read
    double reading_s;  // the time of all threads together in reading samples
    double waiting_s;  // the time that training waited for the next batch
  };

  // Begins with `threads` threads; 1 <= threads <= most.
  ThreadTuner(int threads, int most);

  int threads() const { return threads_; }

  // Sets threads() anew. `window` describes the work since the last call of Add().
  void Add(const Window& window);

 private:
  void TryMore(double rate);

  int most_;
  int threads_;
  bool trying_ = false;
  // The number of threads before the trial, and the samples a second that these threads achieved.
  int threads_before_ = 0;
  double rate_before_ = 0;
  int enough_;        // the most threads that a trial may use; below most_ after a failed trial
  int patience_ = 0;  // the number of windows until enough_ becomes most_ again
};

}  // namespace lockstep
