// BackgroundSink: hands a run's events to a worker that runs on a thread of its own, so that no file, socket or command
// of a sink makes training wait.
//
// Promise: On() copies the event and returns. On() takes no lock and makes no system call. The only exception is
// RunFailed, after which the run does not train: On() then waits until the worker has seen the event, but not longer
// than kPatience.
//
// Invariants:
//   1. The worker is called on one thread only, about once a second, with all events since the last call, in order.
//   2. If the worker throws, the worker is called again a second later. Only the worker's first exception is printed,
//      as a warning on standard error.
//   3. If the worker hangs, at most kMostWaiting events wait for it. The events that follow are dropped.
//   4. The worker's thread blocks all signals, because the training thread handles them.
//   5. If the worker hangs when the sink is destroyed (for example in a file system whose server is gone), the
//      destructor waits for kEndPatience, warns, and returns. The thread then still runs and owns the worker, but does
//      not call it again. A worker must therefore own everything that it uses.
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/background_sink_test.cc)
//   the worker throws -> one warning -> BackgroundSink.AWorkerThatThrowsIsCalledAgain
//   the worker hangs -> nothing, but events are dropped -> BackgroundSink.AWorkerThatHangsKeepsNobodyWaiting
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

  // Processes `events`. `ends` says whether the process may end as soon as this call returns. Even then there may be
  // further calls. Work() may throw any std::exception.
  virtual void Work(const std::vector<TimedEvent>& events, bool ends) = 0;

  // Returns a file descriptor, or -1. As soon as the descriptor has something to read, OnReadable() is called.
  virtual int Readable() const { return -1; }
  virtual void OnReadable() {}
};

// The maximum time for which On() waits for the worker at RunFailed. No worker needs this much time for this event.
inline constexpr std::chrono::seconds kPatience{6};
inline constexpr int64_t kMostWaiting = 1 << 16;
// The maximum time for which the destructor of a sink waits for the sink's worker.
inline constexpr std::chrono::seconds kEndPatience{15};

// Returns a sink that hands its events to `worker`. `name` is the config field with which the user enabled the sink;
// the warning about a worker that hangs begins with the name of this field.
std::unique_ptr<EventSink> NewBackgroundSink(std::string name, std::unique_ptr<EventWorker> worker,
                                             std::chrono::milliseconds patience = kEndPatience);

}  // namespace lockstep
