// AlertCommand: runs a user's command beside the run.
//
// Promise: nothing waits for the command. It is a process group of its own, is never stopped by the run's signals, reads
// nothing, and prints on the run's standard error. It inherits no file of the run, no signal mask, and none of the
// variables by which a process finds out that it is a rank (so it may start lockstep or mpirun itself).
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/alert_sink_test.cc)
//   /bin/sh cannot be started -> Error (kUsage) with the system's reason
//   the command ends with a status other than 0, or by a signal -> Error (kUsage) with it from HasEnded()
//     -> Alert.ACommandThatFailsIsNamed
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class AlertCommand {
 public:
  // `command`: for /bin/sh. `variables`: of its environment, besides this process's. Throws Error.
  AlertCommand(const std::string& command,
               const std::vector<std::pair<std::string, std::string>>& variables);
  // Ends it with all that it started in its group, if it has not ended.
  ~AlertCommand();
  AlertCommand(const AlertCommand&) = delete;
  AlertCommand& operator=(const AlertCommand&) = delete;

  // Throws Error where it has, and failed.
  bool HasEnded();

  // Waits until it has ended, but no longer than that. Throws Error likewise.
  void WaitFor(std::chrono::milliseconds time);

 private:
  pid_t pid_ = 0;  // 0: it has ended
};

}  // namespace lockstep
