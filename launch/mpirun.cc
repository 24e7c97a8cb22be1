#include "launch/mpirun.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace lockstep {
namespace {

// What the child that should have become mpirun exits with where it could not, as a shell does.
constexpr int kNotFound = 127;
constexpr int kNotStarted = 126;

}  // namespace

std::vector<std::string> MpirunCommand(int ranks, const std::string& program,
                                       const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"mpirun", "-n", std::to_string(ranks)};
  const auto add = [&](std::initializer_list<std::string> words) {
    command.insert(command.end(), words);
  };
  if (geteuid() == 0) add({"--allow-run-as-root"});
  // mpirun counts cores, not hardware threads, and refuses more ranks than that without a word.
  add({"--oversubscribe"});
  // With two ranks or fewer mpirun binds each to one core, which its loader's threads would share.
  add({"--bind-to", "none"});
  // Only errors of our own, not mpirun's pages about them.
  add({"-quiet"});
  // One machine needs no network and no ssh; shared memory without process_vm_readv works in
  // containers.
  add({"--mca", "plm", "isolated", "--mca", "pml", "ob1", "--mca", "btl", "self,vader", "--mca",
       "btl_vader_single_copy_mechanism", "none"});
  command.push_back(program);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

std::string ShellText(const std::vector<std::string>& command) {
  constexpr char kSafe[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
  std::string text;
  for (const std::string& word : command) {
    if (!text.empty()) text += ' ';
    if (!word.empty() && word.find_first_not_of(kSafe) == std::string::npos) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

int Supervise(const std::vector<std::string>& command, std::string* output) {
  // Blocked before mpirun runs, so that none is lost, and taken one after the other.
  sigset_t taken;
  sigset_t before;
  sigemptyset(&taken);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD}) {
    sigaddset(&taken, signal);
  }
  // What is ignored (nohup) stays so, but not SIGCHLD: it says that mpirun has ended.
  ::signal(SIGCHLD, SIG_DFL);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) sigdelset(&taken, signal);
  }
  if (output != nullptr) sigemptyset(&taken);  // whoever ends this process ends mpirun with it
  pthread_sigmask(SIG_BLOCK, &taken, &before);

  int pipe_ends[2] = {-1, -1};
  if (output != nullptr && pipe2(pipe_ends, O_CLOEXEC) != 0) {
    throw UsageError("{} cannot be started: {}", command[0], std::strerror(errno));
  }
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t supervisor = getpid();
  const pid_t child = fork();
  if (child < 0) throw UsageError("{} cannot be started: {}", command[0], std::strerror(errno));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != supervisor) _exit(static_cast<int>(ExitStatus::kPeer));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (output != nullptr) dup2(pipe_ends[1], STDOUT_FILENO);
    execvp(words[0], words.data());
    _exit(errno == ENOENT ? kNotFound : kNotStarted);
  }
  if (output != nullptr) {
    close(pipe_ends[1]);
    char bytes[4096];
    ssize_t count = 0;
    while ((count = read(pipe_ends[0], bytes, sizeof(bytes))) > 0) output->append(bytes, count);
    close(pipe_ends[0]);
  }

  int status = 0;
  int ended_by = 0;  // the signal that this job's user ended it with
  while (waitpid(child, &status, output != nullptr ? 0 : WNOHANG) == 0) {
    siginfo_t signal{};
    if (sigwaitinfo(&taken, &signal) < 0 || signal.si_signo == SIGCHLD) continue;
    if (signal.si_signo != SIGUSR1 && signal.si_signo != SIGUSR2) ended_by = signal.si_signo;
    // Ctrl-C reaches mpirun by itself: the terminal sends it to both.
    if (signal.si_code != SI_KERNEL) kill(child, signal.si_signo);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (WIFSIGNALED(status)) {
    throw PeerError("mpirun was killed by signal {} ({}), and its ranks with it", WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
  }
  const int code = WEXITSTATUS(status);
  if (code == kNotFound) {
    throw UsageError("mpirun is not installed: apt-get install openmpi-bin, or leave out -n");
  }
  if (code == kNotStarted) throw UsageError("{} cannot be started", command[0]);
  // What a signal ended has 1 from mpirun, or 128 + the signal that a rank died of.
  if (ended_by != 0 && (code == 1 || code > 128)) return 128 + ended_by;
  if (code == static_cast<int>(ExitStatus::kInterrupted)) return code;
  return code > 128 ? static_cast<int>(ExitStatus::kPeer) : code;
}

}  // namespace lockstep
