// AlertSink: runs the user's command when a run stalls, fails, or trains much below its own best speed.
//
// The command finds LOCKSTEP_ALERT (stalled, failed or slow), LOCKSTEP_RUN (the run folder) and LOCKSTEP_MESSAGE (one
// line) in its environment.
//   stalled  no optimizer step and no other event for stall_s; again only after a further step
//   failed   RunFailed
//   slow     a SecondsReport whose ideal_share() is below alert_below; again only after one that is not
//
// Invariants:
//   1. At most one command runs at a time. An alert that comes meanwhile waits for its end; one of a kind that waits
//      already takes its place. `failed` does not wait: it ends the command that runs.
//   2. A command that runs when the process is to end has kLastSeconds; then it is ended.
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/alert_sink_test.cc)
//   the command fails -> one warning -> Alert.ACommandThatFailsIsNamed
//   the command never ends -> no further one is run until the process ends -> Alert.OneAtATime
//   the process is killed -> no alert: nobody is left to run it
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "observe/run_event.h"
#include "observe/sinks/background_sink.h"

namespace lockstep {

struct AlertOptions {
  std::string command;
  std::string run_dir;
  double stall_s = 300;
  double alert_below = 0.5;
};

inline constexpr std::chrono::seconds kLastSeconds{5};
static_assert(kLastSeconds < kPatience);

// Of rank 0. `steps`: optimizer steps that are done; it must outlive the sink.
std::unique_ptr<EventSink> NewAlertSink(AlertOptions options, const std::atomic<int64_t>& steps);

}  // namespace lockstep
