// Loader: a sampler's micro-batches, read ahead by threads into a ring of fixed slots.
//
// Promise: Next() returns the sampler's micro-batches in the sampler's order; their content does
// not depend on the number of threads nor on when a thread runs.
//
// Invariants:
//   1. Ticket t (the t-th micro-batch) lives in slot t % slots. Tickets are handed to threads in
//      order, together with the sampler's micro-batch, under one lock.
//   2. A slot goes free -> being filled -> ready -> lent (by Next) -> free (by Release). A thread
//      fills ticket t only after ticket t - slots was released.
//   3. All slots are allocated in the constructor, pinned if asked for; nothing is allocated later
//      but the sampler's index lists.
//   4. With no threads Next() itself fills the slot.
//
// what can fail -> what the caller sees -> the test that shows it (data/loader_test.cc)
//   Dataset::Read throws in a thread -> Next() throws it in the place of that micro-batch
//     -> Loader.CarriesAnExceptionToTheCaller
//   the loader is destroyed while threads read or wait -> they are joined -> Loader.StopsInAnyState
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"

namespace lockstep {

struct LoaderOptions {
  int threads = 0;
  int slots = 4;        // micro-batches in flight, at least 2
  bool pinned = false;  // page-locked memory, for asynchronous copies to a GPU
};

struct HostBatch {
  MicroBatch origin;
  at::Tensor input;   // [count, shape...] of the data set's dtype; a view of the slot
  at::Tensor target;  // [count, spec.target_shape()...] likewise
};

class Loader {
 public:
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

 private:
  struct Slot {
    at::Tensor input;
    at::Tensor target;
    MicroBatch origin;
    std::function<void()> until_unused;
    std::exception_ptr exception;
    bool ready = false;
  };

  void Fill(Slot& slot);
  void Run();
  void StopThreads();

  const Dataset& dataset_;
  Sampler sampler_;
  std::vector<Slot> slots_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t claimed_ = 0;   // tickets handed to threads
  int64_t taken_ = 0;     // tickets that Next() returned
  int64_t released_ = 0;  // tickets that Release() gave back
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
