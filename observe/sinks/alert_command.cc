#include "observe/sinks/alert_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/files/file_descriptor.h"

namespace lockstep {
namespace {

// The prefixes of the environment variables by which Open MPI and PMIx tell a process that it is a rank.
constexpr std::string_view kRankVariables[] = {"OMPI_", "PMIX_", "PMI_", "PRTE_", "OPAL_", "ORTE_"};

std::vector<std::string> EnvironmentWith(
    const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto begins = [&](std::string_view prefix) { return text.starts_with(prefix); };
    const auto is_set = [&](const auto& set) { return text.starts_with(set.first + "="); };
    if (std::ranges::any_of(kRankVariables, begins)) continue;
    if (std::ranges::any_of(variables, is_set)) continue;
    environment.emplace_back(text);
  }
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The open files, the signal mask and the process group with which the command starts.
class Beginning {
 public:
  Beginning() {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files_, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files_, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes_, 0);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
  }
  ~Beginning() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  Beginning(const Beginning&) = delete;
  Beginning& operator=(const Beginning&) = delete;

  const posix_spawn_file_actions_t* files() const { return &files_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

void RequireSuccess(int status) {
  if (WIFSIGNALED(status)) {
    throw UsageError("observe.on_alert: the command was ended by signal {}", WTERMSIG(status));
  }
  if (WEXITSTATUS(status) != 0) {
    throw UsageError("observe.on_alert: the command failed with status {}", WEXITSTATUS(status));
  }
}

}  // namespace

AlertCommand::AlertCommand(const std::string& command,
                           const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> words{"sh", "-c", command};
  std::vector<std::string> environment = EnvironmentWith(variables);
  const Beginning beginning;
  const int error = posix_spawn(&pid_, "/bin/sh", beginning.files(), beginning.attributes(),
                                Pointers(words).data(), Pointers(environment).data());
  if (error != 0) {
    pid_ = 0;
    throw UsageError("observe.on_alert: /bin/sh cannot be started: {}", std::strerror(error));
  }
}

AlertCommand::~AlertCommand() {
  if (pid_ == 0) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool AlertCommand::HasEnded() {
  if (pid_ == 0) return true;
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
  pid_ = 0;
  // If another thread has already waited for the child process, the command's exit status is not known.
  if (ended > 0) RequireSuccess(status);
  return true;
}

bool AlertCommand::WaitFor(std::chrono::milliseconds time) {
  if (HasEnded()) return true;
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  pollfd end{.fd = process.get(), .events = POLLIN, .revents = 0};
  poll(&end, 1, static_cast<int>(time.count()));
  return HasEnded();
}

}  // namespace lockstep
