// BackgroundSink: hands a run's events to a worker that runs on a thread of its own, so that no file, socket or command
// of a sink makes training wait.
//
// Promise: On() copies the event and returns. It takes no lock and makes no system call. The only exception is
// RunFailed, after which the run does not train: On() then waits until the worker has seen the event, but not longer
// than kPatience.
//
// Invariants:
//   1. The worker is called on one thread only, about once a second, with all events since the last call in their
//      order.
//   2. If the worker throws, it is called again a second later. Only its first exception is printed, as a warning on
//      standard error.
//   3. If the worker hangs, at most kMostWaiting events wait for it. The events that follow are dropped.
//   4. The thread blocks all signals, because the thread that trains handles them.
//   5. If the worker hangs when the sink is destroyed (a file system whose server is gone), the destructor waits for
//      kEndPatience, warns, and leaves the worker to the thread, which does not call it again. A worker must therefore
//      own what it uses.
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/background_sink_test.cc)
//   the worker throws -> one warning -> BackgroundSink.AWorkerThatThrowsIsCalledAgain
//   the worker hangs -> nothing; events are dropped -> BackgroundSink.AWorkerThatHangsKeepsNobodyWaiting
//   the worker hangs when the process ends -> one warning -> BackgroundSink.AWorkerThatHangsIsLeftBehind
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "observe/run_event.h"

namespace lockstep {

struct TimedEvent {
  double time = 0;  // the Unix time at which the event was emitted
  RunEvent event;
};

class EventWorker {
 public:
  virtual ~EventWorker() = default;

  // Does its work with `events`. `ends` says that the process may end as soon as this call returns, but there may be
  // further calls. It may throw any std::exception.
  virtual void Work(const std::vector<TimedEvent>& events, bool ends) = 0;

  // Returns a file descriptor, or -1. As soon as the descriptor has something to read, OnReadable() is called.
  virtual int Readable() const { return -1; }
  virtual void OnReadable() {}
};

// It is longer than any worker takes for RunFailed.
inline constexpr std::chrono::seconds kPatience{6};
inline constexpr int64_t kMostWaiting = 1 << 16;
// The time for which a sink that is destroyed waits for its worker.
inline constexpr std::chrono::seconds kEndPatience{15};

// Returns a sink that hands its events to `worker`. `name` is the config field that the user set for it, with which the
// warning of a worker that hangs begins.
std::unique_ptr<EventSink> NewBackgroundSink(std::string name, std::unique_ptr<EventWorker> worker,
                                             std::chrono::milliseconds patience = kEndPatience);

}  // namespace lockstep
