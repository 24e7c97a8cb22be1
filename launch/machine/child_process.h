// ChildProcess: runs a program as a child of this process.
//
// Promise: when this process ends, for whatever reason, the kernel sends SIGTERM to the child (PR_SET_PDEATHSIG).
// The signal is SIGTERM and not SIGKILL, so that a child such as mpirun can end its own child processes first. The
// child's standard input is /dev/null.
//
// what can fail -> what the caller sees -> the test that shows it (launch/machine/child_process_test.cc)
//   the program does not exist, or cannot be run -> Error (kUsage) with the system's reason
//     -> ChildProcess.SaysWhyAProgramCannotBeStarted
//   this process is killed -> the child gets SIGTERM -> tests/fault_test.py, test_the_command_itself_is_killed
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class ChildProcess {
 public:
  struct End {
    int code = 0;    // the exit status, if no signal ended the child
    int signal = 0;  // the signal that ended the child; 0: none
  };

  // The process group of the child. kOurs is the group of this process. If the child has a group of its own (kOwn), the
  // terminal's Ctrl-C and Ctrl-Z do not reach the child.
  enum class Group { kOurs, kOwn };

  // Starts the child. `command` is the program, which is searched for in $PATH, and the program's arguments. `output`
  // and `error` are the file descriptors of the child's standard output and standard error; -1: those of this process.
  // The child starts with the signals of `mask` blocked. Throws Error (kUsage).
  ChildProcess(const std::vector<std::string>& command, Group group, int output,
               const sigset_t& mask, int error = -1);
  // Kills the child if it has not ended, and waits for its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Sends a signal to the child, if it has not ended.
  void Send(int signal) const;

  // Kills the child, and makes the destructor not wait for the child's end.
  void Abandon();

  // Returns how the child ended, or nothing if it has not ended.
  std::optional<End> Poll();

  // Waits until the child has ended, and returns how it ended.
  End Wait();

 private:
  std::optional<End> WaitWith(int options);

  pid_t pid_ = 0;
  std::optional<End> end_;
};

// Runs `command`, waits for its end, and appends its standard output to `output`. The terminal's Ctrl-C reaches both
// this process and the command. Throws Error (kUsage).
ChildProcess::End RunAndRead(const std::vector<std::string>& command, std::string& output);

// Returns the path of the program in $PATH; an empty string if no folder of $PATH has the program.
std::string FindInPath(const std::string& program);

}  // namespace lockstep
