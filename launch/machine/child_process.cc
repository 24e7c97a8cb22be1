#include "launch/machine/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "base/files/file_descriptor.h"

namespace lockstep {

ChildProcess::ChildProcess(const std::vector<std::string>& command, Group group, int output,
                           const sigset_t& mask, int error) {
  const auto fail = [&](int number) {
    throw UsageError("{} cannot be started: {}", command[0], std::strerror(number));
  };
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  // If execvp() succeeds, it closes the child's end of this pipe (O_CLOEXEC). If execvp() fails, the child writes errno
  // to the pipe.
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail(errno);
  const FileDescriptor told(ends[0]);
  FileDescriptor telling(ends[1]);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) fail(errno);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    // If the parent died before prctl() was called, the kernel sends no signal. The child then has another parent.
    if (getppid() != parent) _exit(static_cast<int>(ExitStatus::kPeer));
    if (group == Group::kOwn) setpgid(0, 0);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    if (output >= 0) dup2(output, STDOUT_FILENO);
    if (error >= 0) dup2(error, STDERR_FILENO);
    // This process ignores SIGPIPE and SIGXFSZ. A child process inherits ignored signals, so the child restores the
    // default effect of both.
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    execvp(words[0], words.data());
    const int number = errno;
    (void)!write(telling.get(), &number, sizeof(number));
    _exit(static_cast<int>(ExitStatus::kUsage));
  }
  telling = FileDescriptor();
  int number = 0;
  ssize_t count = 0;
  while ((count = read(told.get(), &number, sizeof(number))) < 0 && errno == EINTR) {
  }
  if (count > 0) {
    Wait();
    fail(number);
  }
}

ChildProcess::~ChildProcess() {
  if (end_) return;
  Send(SIGKILL);
  Wait();
}

void ChildProcess::Send(int signal) const {
  if (!end_) kill(pid_, signal);
}

void ChildProcess::Abandon() {
  Send(SIGKILL);
  end_ = Poll().value_or(End{.signal = SIGKILL});
}

std::optional<ChildProcess::End> ChildProcess::Poll() { return WaitWith(WNOHANG); }

ChildProcess::End ChildProcess::Wait() { return *WaitWith(0); }

std::optional<ChildProcess::End> ChildProcess::WaitWith(int options) {
  if (end_) return end_;
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(pid_, &status, options)) < 0 && errno == EINTR) {
  }
  if (ended == 0) return std::nullopt;
  if (ended < 0) throw BugError("the child process is lost: {}", std::strerror(errno));
  end_ = WIFSIGNALED(status) ? End{.signal = WTERMSIG(status)} : End{.code = WEXITSTATUS(status)};
  return end_;
}

ChildProcess::End RunAndRead(const std::vector<std::string>& command, std::string& output) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw BugError("no pipe: {}", std::strerror(errno));
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  sigset_t none;
  sigemptyset(&none);
  ChildProcess child(command, ChildProcess::Group::kOurs, writing.get(), none);
  writing = {};
  char bytes[4096];
  ssize_t count = 0;
  while ((count = read(reading.get(), bytes, sizeof(bytes))) > 0) output.append(bytes, count);
  return child.Wait();
}

std::string FindInPath(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string found = folder + "/" + program;
    if (access(found.c_str(), X_OK) == 0) return found;
  }
  return "";
}

}  // namespace lockstep
