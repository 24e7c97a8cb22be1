// Loader: reads a sampler's micro-batches ahead of training, with threads that fill a ring of fixed slots.
//
// Promise: Next() returns the sampler's micro-batches in the sampler's order; the content of a micro-batch does not
// depend on the number of threads nor on when a thread runs.
//
// Invariants:
//   1. Ticket t stands for the t-th micro-batch, which is made in slot t % slots. A thread that opens a ticket takes
//      the next micro-batch from the sampler, under one lock, so tickets are opened in order. A ticket is opened when
//      all samples of the tickets before it have been given to threads, so there may be more threads than slots.
//   2. The states of a slot are free -> open -> ready -> lent (by Next) -> free (by Release). Ticket t is opened only
//      after ticket t - slots was released. The samples of an open slot are given to threads in order, some at a time.
//      The slot is ready when the last sample is written.
//   3. All slots are allocated in the constructor, pinned if asked for. Nothing is allocated later except the
//      sampler's index lists.
//   4. With no threads Next() itself fills the slot.
//   5. The first working_ threads take work, and the other threads sleep. Next() tunes the number working_
//      (thread_tuner.h), from the number of samples that were read and the time that training waited since the last
//      tuning.
//
// Lockstep does not read files ahead of the threads that decode them. We measured this on two cores with a cold page
// cache on a virtual disk. Two threads gave 0.72 of the images a second that they give with a warm cache. With
// readahead of 8 or 32 files two threads gave 0.75. Eight threads without readahead gave 0.86, and the tuning finds
// this number of threads.
//
// what can fail -> what the caller sees -> the test that shows it (data/feed/loader_test.cc)
//   Dataset::Read throws in a thread -> Next() throws it in the place of that micro-batch; where
//     several samples of one do, the first one's -> LoaderWithThreads.CarriesAnExceptionToTheCaller
//   the loader is destroyed while threads read or wait -> they are joined -> LoaderWithThreads.StopsInAnyState
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/feed/augment.h"
#include "data/feed/sampler.h"
#include "data/feed/thread_tuner.h"

namespace lockstep {

struct LoaderOptions {
  int threads = 0;           // 0: the one that calls Next() reads
  int most_threads = 0;      // that tuning may go to; up to `threads`: there is no tuning
  int slots = 4;             // micro-batches in flight, at least 2
  bool pinned = false;       // page-locked memory, for asynchronous copies to a GPU
  AugmentOptions augment{};  // what to draw for each sample, of pixels
};

struct HostBatch {
  MicroBatch origin;
  at::Tensor input;   // [count, shape...] of the data set's dtype; a view of the slot
  at::Tensor target;  // [count, spec.target_shape()...] likewise
  at::Tensor draws;   // float32 [count, kAugmentDraws] likewise; undefined where nothing is drawn
};

// Where the time went since the loader was made, in seconds.
struct LoaderTimes {
  double available = 0;  // that threads had, all together; with none 0
  double reading = 0;    // of it in Dataset::Read
  double computing = 0;  // of that on a core
  double waiting = 0;    // in Next()

  LoaderTimes operator+(const LoaderTimes& other) const;
  LoaderTimes operator-(const LoaderTimes& other) const;
};

// What keeps a loader from giving more, in words.
std::string LimitOf(const LoaderTimes& loader, const ReadTimes& reads);

class Loader {
 public:
  // Samples that a thread takes at once, unless the data set asks for more: enough for the lock not to
  // count, few enough for all threads to have work in the batch that is wanted next.
  static constexpr int64_t kBytesAtOnce = int64_t{64} << 10;

  // Keeps a reference to `dataset`.
  Loader(const Dataset& dataset, const Sampler& sampler, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next micro-batch. Its tensors hold until it is released; up to slots - 1 may be held at
  // once.
  HostBatch Next();

  // Gives back the oldest batch that Next() returned. `until_unused`, if any, is called from a
  // loader thread before the slot is written again: it waits for an asynchronous copy, say.
  void Release(std::function<void()> until_unused = nullptr);

  LoaderTimes times() const;

  // What it draws for each sample.
  const AugmentOptions& augment() const { return augment_; }

  // That take work now.
  int threads() const;

  // What was done since the last Next() was something else than using its batch: the time does not count.
  void Rest();

 private:
  struct Slot {
    at::Tensor input;
    at::Tensor target;
    at::Tensor draws;
    MicroBatch origin;
    int64_t count = 0;       // samples
    int64_t handed_out = 0;  // of them to threads
    int64_t unwritten = 0;   // of them, not in their place yet
    std::function<void()> until_unused;
    std::exception_ptr exception;
    int64_t failed =
        0;  // the place in the batch of the first of the samples that it was thrown for
    bool ready = false;
  };

  bool CanOpen() const;
  void Open(std::unique_lock<std::mutex>& lock);
  Slot* SlotToFill();
  void Finish(Slot& slot);
  void ReadSamples(const Slot& slot, int64_t begin, int64_t end) const;
  void ReadSome(Slot& slot, std::unique_lock<std::mutex>& lock);
  void Run(int number);
  void Tune();
  void BeginWindow(double now);
  void StartThreads(const LoaderOptions& options);
  void StopThreads();

  const Dataset& dataset_;
  Sampler sampler_;
  AugmentOptions augment_;
  int64_t at_once_;
  std::vector<Slot> slots_;

  mutable std::mutex mutex_;  // guards all that follows, and the slots' state
  std::condition_variable work_, parked_, ready_;
  int64_t opened_ = 0;    // tickets whose samples are handed out, or all were
  int64_t taken_ = 0;     // tickets that Next() returned
  int64_t released_ = 0;  // tickets that Release() gave back
  bool opening_ = false;  // a thread waits until the next slot is unused
  bool stopping_ = false;
  LoaderTimes times_;
  int64_t read_samples_ = 0;
  int working_;  // threads
  std::optional<ThreadTuner> tuner_;
  double taken_at_;  // when Next() last returned
  // When tuner_ was last asked, and what had been done then.
  double tuned_at_;
  LoaderTimes tuned_times_;
  int64_t tuned_samples_ = 0;
  int64_t tuned_taken_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
