// BackgroundSink: hands a run's events to a worker that runs on a thread of its own, so that no file, socket or command
// of a sink makes training wait.
//
// Promise: On() copies the event and returns. It takes no lock and makes no system call, except for RunFailed, behind
// which nothing is trained any more: On() then waits until the worker has seen the event, for at most kPatience.
//
// Invariants:
//   1. The worker is called on one thread only, about once a second, with all events since the last call in their order.
//   2. What the worker throws is one warning on standard error, the first time; it is called again a second later.
//   3. If the worker hangs, at most kMostWaiting events wait for it. Those that follow are dropped.
//   4. The thread takes no signals: they are for the thread that trains.
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/background_sink_test.cc)
//   the worker throws -> one warning -> BackgroundSink.AWorkerThatThrowsIsCalledAgain
//   the worker hangs -> nothing; events are dropped -> .AWorkerThatHangsKeepsNobodyWaiting
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "observe/run_event.h"

namespace lockstep {

struct TimedEvent {
  double time = 0;  // Unix time at which it was emitted
  RunEvent event;
};

class EventWorker {
 public:
  virtual ~EventWorker() = default;

  // `ends`: the process may end when this returns. It may be called again nevertheless.
  virtual void Work(const std::vector<TimedEvent>& events, bool ends) = 0;

  // A file descriptor for which OnReadable() is called as soon as it has something to read; -1: none.
  virtual int Readable() const { return -1; }
  virtual void OnReadable() {}
};

// For RunFailed: longer than any worker takes for it.
inline constexpr std::chrono::seconds kPatience{6};
inline constexpr int64_t kMostWaiting = 1 << 16;

std::unique_ptr<EventSink> NewBackgroundSink(std::unique_ptr<EventWorker> worker);

}  // namespace lockstep
