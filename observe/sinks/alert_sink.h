// AlertSink: runs the user's command when a run stalls, fails, or trains much below its own best speed.
//
// The command finds LOCKSTEP_ALERT (stalled, failed or slow), LOCKSTEP_RUN (the run folder) and LOCKSTEP_MESSAGE (one
// line) in its environment.
//   stalled  There was no optimizer step and no other event of the run for stall_s seconds. Readings of the machine,
//            warnings and SecondsReports do not count as events here. Evaluations are not watched, because an
//            evaluation may take longer than stall_s. The next `stalled` alert can come only after a further step.
//   failed   The run ends because of an error (RunFailed).
//   slow     A SecondsReport has an ideal_share() below alert_below. The next `slow` alert can come only after a report
//            at or above alert_below.
//
// Invariants:
//   1. At most one command runs at a time. An alert that comes while a command runs waits for the end of the command.
//      If an alert of the same kind waits already, the new alert replaces the waiting alert. The alert `failed` does
//      not wait: it kills the command that runs.
//   2. A command that still runs when the process is about to end is killed after kLastSeconds, with a warning.
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/alert_sink_test.cc)
//   the command fails -> one warning -> Alert.ACommandThatFailsIsNamed
//   the command never ends -> no further command runs, except for `failed`, and one warning when the process ends
//     -> Alert.OneAtATime, Alert.ACommandThatOutlivesTheProcessIsEnded
//   the process is killed -> the watchdog of another rank calls AlertOfLostRank() -> tests/sinks_test.py,
//     test_a_rank_that_is_lost_runs_the_alert_command
//   a single process is killed -> no alert, because nobody is left to run the command
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

// Returns the sink, which rank 0 needs. `steps` counts the optimizer steps that are done so far.
std::unique_ptr<EventSink> NewAlertSink(AlertOptions options,
                                        std::shared_ptr<const std::atomic<int64_t>> steps);

// Starts the command for the alert `failed` and does not wait for the command. Must be called in a process that is
// about to end because another rank has failed. `status` is the exit status of the job. If the command cannot be
// started, nothing happens.
void AlertOfLostRank(const AlertOptions& options, int status, const std::string& why);

}  // namespace lockstep
