// ChildProcess: a program that runs as a child of this process.
//
// Promise: the child ends when this process ends, whatever ends this process (PR_SET_PDEATHSIG). The child gets
// SIGTERM, so that mpirun, as a child, can end its ranks. The child reads nothing from the terminal.
//
// what can fail -> what the caller sees -> the test that shows it (launch/machine/child_process_test.cc)
//   the program is not there, or cannot be run -> Error (kUsage) with the system's reason
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
    int code = 0;    // its exit status, where no signal ended it
    int signal = 0;  // that ended it; 0: none
  };

  // In a process group of its own the terminal's Ctrl-C and Ctrl-Z do not reach it.
  enum class Group { kOurs, kOwn };

  // `command`: the program, looked for in $PATH, and its arguments. `output` and `error`: the file descriptors that
  // it has as its standard output and error; -1: this process's. It begins with the signals of `mask` blocked.
  ChildProcess(const std::vector<std::string>& command, Group group, int output,
               const sigset_t& mask, int error = -1);
  // Kills it, if it has not ended, and waits for that.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Send(int signal) const;

  // Kills it, and does not wait for its end.
  void Abandon();

  // How it ended; nothing: it has not.
  std::optional<End> Poll();

  End Wait();

 private:
  std::optional<End> WaitWith(int options);

  pid_t pid_ = 0;
  std::optional<End> end_;
};

// Runs `command` to its end, appending to `output` what it writes to its standard output. The terminal's Ctrl-C
// reaches both. Throws Error (kUsage).
ChildProcess::End RunAndRead(const std::vector<std::string>& command, std::string& output);

// Where $PATH has the program; empty: nowhere.
std::string FindInPath(const std::string& program);

// The command as a shell would take it.
std::string ShellText(const std::vector<std::string>& command);

}  // namespace lockstep
