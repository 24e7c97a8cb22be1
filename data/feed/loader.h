// Loader: reads a sampler's micro-batches ahead of training, with threads that fill a ring of fixed slots.
//
// Promise: Next() returns the sampler's micro-batches in the sampler's order; the content of a micro-batch does not
// depend on the number of threads or on when a thread runs.
//
// Invariants:
//   1. Ticket t stands for the t-th micro-batch, which is made in slot t % slots. A thread that opens a ticket takes
//      the next micro-batch from the sampler, under one lock, so tickets are opened in order. A ticket is opened only
//      when all samples of the earlier tickets have been given to threads. Several threads can fill one slot, so there
//      may be more threads than slots.
//   2. The states of a slot are free -> open -> ready -> lent (by Next) -> free (by Release). Ticket t is opened only
//      after ticket t - slots was released. The samples of an open slot are given to threads in order, some at a time.
//      The slot is ready when the last sample is written.
//   3. All slots are allocated in the constructor, in pinned memory if LoaderOptions::pinned is set. Nothing is
//      allocated later except the sampler's index lists.
//   4. With no threads Next() itself fills the slot.
//   5. The first working_ threads take work, and the other threads sleep. Next() tunes working_ (thread_tuner.h). The
//      tuning uses the number of samples that were read, and the time that training waited, since the previous tuning.
//
// Lockstep does not read files ahead of the threads that decode them, because additional threads help more. On two
// cores, with files on a virtual disk and a cold page cache, two threads reached 0.72 of the rate (images a second)
// that they reach with a warm page cache. With a readahead of 8 or 32 files, two threads reached 0.75 of the rate with
// a warm cache. Eight threads without readahead reached 0.86 of the rate with a warm cache, and the tuning finds this
// number of threads.
//
// what can fail -> what the caller sees -> the test that shows it (data/feed/loader_test.cc)
//   Dataset::ReadSome throws in a thread -> Next() throws the exception in place of the micro-batch that the thread
//     reads; if several samples of the micro-batch fail, Next() throws the exception of the first of them
//     -> LoaderWithThreads.CarriesAnExceptionToTheCaller
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
  int threads = 0;  // 0: the thread that calls Next() reads the samples
  // The maximum number of threads for tuning. If it is not more than `threads`, there is no tuning.
  int most_threads = 0;
  int slots = 4;             // the number of slots, at least 2
  bool pinned = false;       // whether the slots are page-locked, for asynchronous copies to a GPU
  AugmentOptions augment{};  // which random changes are drawn for each sample of pixels
};

struct HostBatch {
  MicroBatch origin;
  at::Tensor input;   // [count, shape...], in the data set's dtype; a view of the slot
  at::Tensor target;  // [count, spec.target_shape()...]; a view of the slot
  // The random numbers for the augmentation: float32 [count, kAugmentDraws]; a view of the slot; undefined if nothing
  // is drawn.
  at::Tensor draws;
};

// The seconds that the loader has spent in each activity since its construction.
struct LoaderTimes {
  double available = 0;  // the sum of the working threads' busy and idle time; 0 without threads
  double reading = 0;    // the time of all threads together in Dataset::ReadSome
  double computing = 0;  // the part of `reading` in which the threads ran on a core (CPU time)
  double waiting = 0;    // the time that the calls of Next() took

  LoaderTimes operator+(const LoaderTimes& other) const;
  LoaderTimes operator-(const LoaderTimes& other) const;
};

// Returns a text for the user that says what limits the speed of a loader.
std::string LimitOf(const LoaderTimes& loader, const ReadTimes& reads);

class Loader {
 public:
  // How many bytes of samples a thread takes at once, unless samples_at_once() of the data set asks for more. These
  // bytes are enough to make the cost of the lock negligible, and few enough that all threads find work in the next
  // micro-batch.
  static constexpr int64_t kBytesAtOnce = int64_t{64} << 10;

  // Keeps a reference to `dataset`.
  Loader(const Dataset& dataset, const Sampler& sampler, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Returns the next micro-batch. The tensors of the micro-batch are valid until Release() releases the micro-batch.
  // The caller may hold up to LoaderOptions::slots - 1 micro-batches at once.
  HostBatch Next();

  // Releases the oldest micro-batch that Next() returned and that was not yet released. If `until_unused` is given, a
  // loader thread calls `until_unused` before it writes to the slot again. `until_unused` can wait for an asynchronous
  // copy, for example.
  void Release(std::function<void()> until_unused = nullptr);

  LoaderTimes times() const;

  // Returns the options of the random changes that the loader draws for each sample.
  const AugmentOptions& augment() const { return augment_; }

  // Returns how many threads take work at present.
  int threads() const;

  // Tells the loader that the time since the last Next() includes other work than training on the micro-batch, such as
  // an evaluation. The next tuning ignores the time from the last tuning to this call.
  void Rest();

 private:
  struct Slot {
    at::Tensor input;
    at::Tensor target;
    at::Tensor draws;
    MicroBatch origin;
    int64_t count = 0;       // the number of samples
    int64_t handed_out = 0;  // the number of samples that were given to threads
    int64_t unwritten = 0;   // the number of samples that are not yet written
    std::function<void()> until_unused;
    std::exception_ptr exception;
    // The index, in the micro-batch, of the first sample of the Dataset::ReadSome() call that threw `exception`.
    int64_t failed = 0;
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

  mutable std::mutex mutex_;  // guards all members below, and the state of the slots
  std::condition_variable work_, parked_, ready_;
  int64_t opened_ = 0;    // how many tickets were opened
  int64_t taken_ = 0;     // how many tickets Next() has returned
  int64_t released_ = 0;  // how many tickets Release() has given back
  bool opening_ = false;  // whether a thread is in Open(); no other thread may then call Open()
  bool stopping_ = false;
  LoaderTimes times_;
  int64_t read_samples_ = 0;
  int working_;  // how many threads take work
  std::optional<ThreadTuner> tuner_;
  double taken_at_;  // the time when Next() last returned
  // The time of the last tuning, and the counts at that time.
  double tuned_at_;
  LoaderTimes tuned_times_;
  int64_t tuned_samples_ = 0;
  int64_t tuned_taken_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
