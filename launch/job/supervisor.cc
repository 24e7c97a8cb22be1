#include "launch/job/supervisor.h"

#include <chrono>
#include <cstring>

#include "base/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks whether a job that was asked to stop can.
constexpr double kLookInterval = 0.02;
constexpr double kLongTime = 3600;

// Between two looks whether a job's rank 0 is there, and how long mpirun may live after it: ranks of a job that ends
// in order leave within a second, and those of one that does not are ended within five.
constexpr double kHeldInterval = 1;
constexpr double kAlone = 10;

constexpr int kTaken[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD};

// The signal of `taken` that came; 0: none did, for so many seconds.
int WaitForSignal(const sigset_t& taken, double seconds) {
  const timespec time{.tv_sec = static_cast<time_t>(seconds),
                      .tv_nsec = static_cast<long>((seconds - static_cast<time_t>(seconds)) * 1e9)};
  return std::max(0, sigtimedwait(&taken, nullptr, &time));
}

}  // namespace

Supervisor::Supervisor() {
  sigemptyset(&taken_);
  // It says that the job has ended, even where whoever started this process did not want to know of its own.
  signal(SIGCHLD, SIG_DFL);
  for (const int number : kTaken) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    // What is ignored (nohup) stays so.
    if (action.sa_handler != SIG_IGN) sigaddset(&taken_, number);
  }
  pthread_sigmask(SIG_BLOCK, &taken_, &before_);
}

Supervisor::~Supervisor() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

Supervisor::End Supervisor::Run(const Program& program, const std::function<bool()>& can_stop) {
  ChildProcess job(program.command, ChildProcess::Group::kOwn, /*output=*/-1, before_);
  bool told = false;
  int ends = 0;  // that the job was told of
  bool was_held = false;
  auto held_at = Clock::now();
  std::optional<ChildProcess::End> end;
  while (!(end = job.Poll())) {
    const double interval = asked_ && !told   ? kLookInterval
                            : program.is_held ? kHeldInterval
                                              : kLongTime;
    const int signal = WaitForSignal(taken_, interval);
    const bool is_held = program.is_held && program.is_held();
    was_held = was_held || is_held;
    if (is_held || !was_held) held_at = Clock::now();
    // Unless this process was stopped, and the job has long ended.
    if (was_held && Clock::now() - held_at > std::chrono::duration<double>(kAlone) && !job.Poll()) {
      job.Abandon();
      return {.status = static_cast<int>(ExitStatus::kPeer),
              .error = fmt::format("the ranks have ended, and {} waits for a machine that does not "
                                   "answer: it was killed",
                                   program.name),
              .by_user = asked_ || ended_by_ != 0};
    }
    if (signal == SIGUSR1) job.Send(signal);
    if (signal != 0) OnSignal(signal, can_stop());
    if (ends_ > ends) {
      job.Send(ends == 0 ? program.end_at_once : SIGKILL);
      ends = ends_;
    } else if (asked_ && !told && can_stop()) {
      job.Send(SIGUSR2);
      told = true;
    }
  }
  const bool by_user = asked_ || ended_by_ != 0;
  if (end->signal != 0 && ended_by_ == 0) {
    return {.status = static_cast<int>(ExitStatus::kPeer),
            .error = fmt::format("{} was killed by signal {} ({}), and all of the job with it",
                                 program.name, end->signal, strsignal(end->signal)),
            .by_user = by_user};
  }
  return {.status = StatusOf(*end),
          .error = "",
          .by_user = by_user,
          // mpirun's own failures are 1, or further up.
          .rank_killed = end->code > 128 && end->code <= 128 + SIGRTMAX};
}

std::optional<Supervisor::End> Supervisor::Pause(double seconds) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    const double left = std::chrono::duration<double>(until - Clock::now()).count();
    const int signal = WaitForSignal(taken_, std::max(left, 0.0));
    if (signal != 0) OnSignal(signal, /*can_stop=*/true);
    if (asked_ || ended_by_ != 0) {
      return End{.status = StatusOf({.code = static_cast<int>(ExitStatus::kStopped)}),
                 .error = "",
                 .by_user = true};
    }
    if (signal == 0 && left <= 0) return std::nullopt;
  }
}

void Supervisor::OnSignal(int signal, bool can_stop) {
  if (signal == SIGCHLD || signal == SIGUSR1) return;
  const bool demands = signal == SIGTERM || signal == SIGINT;
  if (demands) ++demands_;
  // A terminal that closes sends SIGHUP twice.
  const bool at_once = signal == SIGQUIT || (demands && demands_ > 1);
  if (at_once || (!can_stop && signal != SIGUSR2)) {
    ended_by_ = signal;
    ++ends_;
  }
  asked_ = true;
  if (signal == SIGINT) interrupted_ = true;
}

int Supervisor::StatusOf(const ChildProcess::End& end) const {
  if (end.signal != 0) return 128 + ended_by_;
  // What is ended at once has 1 from mpirun, or 128 + the signal that a rank died of.
  if (ended_by_ != 0 && (end.code == 1 || end.code > 128)) return 128 + ended_by_;
  if (interrupted_ && end.code == static_cast<int>(ExitStatus::kStopped)) {
    return static_cast<int>(ExitStatus::kInterrupted);
  }
  return JobStatus(end.code);
}

int JobStatus(int code) {
  if (code == static_cast<int>(ExitStatus::kInterrupted)) return code;
  return code > 128 ? static_cast<int>(ExitStatus::kPeer) : code;
}

}  // namespace lockstep
