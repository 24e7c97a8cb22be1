// AlertCommand: runs a user's command in a child process, while the run goes on.
//
// Promise: the constructor does not wait for the command. The command gets a process group of its own, so signals to
// the run do not stop the command. The command's standard input is empty, and what the command prints goes to the run's
// standard error. The command inherits no open file and no signal mask of the run, and none of the environment
// variables that make a process a rank, so it may start lockstep or mpirun itself.
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/alert_sink_test.cc)
//   /bin/sh cannot be started -> Error (kUsage) with the system's reason from the constructor
//   the command ends with a status other than 0, or by a signal -> Error (kUsage) with the status or the signal from
//     HasEnded() or WaitFor() -> Alert.ACommandThatFailsIsNamed
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class AlertCommand {
 public:
  // Starts `/bin/sh -c command`. The command's environment is this process's environment plus `variables`, which are
  // pairs of name and value. Throws Error (kUsage) if /bin/sh cannot be started.
  AlertCommand(const std::string& command,
               const std::vector<std::pair<std::string, std::string>>& variables);
  // Kills the command and all processes of its process group, if the command has not ended.
  ~AlertCommand();
  AlertCommand(const AlertCommand&) = delete;
  AlertCommand& operator=(const AlertCommand&) = delete;

  // Lets the command continue without this object, even after this process ends.
  void Detach() { pid_ = 0; }

  // Returns whether the command has ended. Throws Error (kUsage), once, if the command has failed.
  bool HasEnded();

  // Waits until the command has ended, but not longer than `time`, and returns whether it has ended. Throws Error
  // (kUsage), once, if the command has failed.
  bool WaitFor(std::chrono::milliseconds time);

 private:
  pid_t pid_ = 0;  // 0: the command has ended or is detached
};

}  // namespace lockstep
