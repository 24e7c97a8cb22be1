#include "launch/job/supervisor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "launch/job/early_signals.h"
#include "launch/job/mpirun.h"

namespace lockstep {
namespace {

// The interval, in seconds, at which Run() checks the job's signs while the job is to stop.
constexpr double kLookInterval = 0.02;

constexpr std::chrono::seconds kPatience{kPatienceS};

constexpr double kLongTime = 3600;

// `kHeldInterval` is the interval, in seconds, at which Run() checks whether the job's rank 0 still runs. `kAlone` is
// how many seconds mpirun may run after the end of rank 0. Ten seconds are enough: if a job ends regularly, all ranks
// leave within a second after rank 0, and if a job fails, all ranks have ended within five seconds. After
// Sign::kSilence mpirun probably waits for a machine that is gone.
constexpr double kHeldInterval = 0.5;
constexpr std::chrono::milliseconds kAlone{10'000}, kAloneInSilence{1200};

// The exit statuses with which a rank of Lockstep can end.
constexpr int kStatuses[] = {0, 2, 3, 4, 5, 70, 75, 130};

// Returns a launcher's text on one line, without the words that consist of dashes, and cut off after 400 characters.
std::string OnOneLine(const std::string& text) {
  constexpr size_t kMost = 400;
  std::istringstream lines(text);
  std::string line;
  for (std::string word; lines >> word;) {
    const bool is_rule = word.find_first_not_of('-') == std::string::npos;
    if (!is_rule) line += (line.empty() ? "" : " ") + word;
  }
  if (line.size() > kMost) line = line.substr(0, kMost) + "...";
  return line;
}

}  // namespace

Supervisor::End Supervisor::Run(const Program& program) {
  Relay relay;
  ChildProcess job(program.command, ChildProcess::Group::kOwn, relay.output(), MaskAtStart(),
                   relay.error());
  relay.Begin();
  bool told = false;
  int ends = 0;  // the value of `ends_` at the last signal that was sent to end the job
  bool was_held = false;
  auto held_at = Clock::now();
  std::optional<ChildProcess::End> end;
  while (!(end = job.Poll())) {
    const bool waits = ends_ > 0 || (asked_ && (!told || !relay.Has(Sign::kTrains)));
    const double interval = waits ? kLookInterval : program.is_held ? kHeldInterval : kLongTime;
    const int signal = taken_.Wait(interval);
    const bool is_held = program.is_held && program.is_held();
    was_held = was_held || is_held;
    if (is_held || !was_held) held_at = Clock::now();
    // The last condition is for the case that this process was stopped (SIGSTOP) for some time, and that the job ended
    // in that time.
    const auto alone = relay.Has(Sign::kSilence) ? kAloneInSilence : kAlone;
    if (was_held && Clock::now() - held_at > alone && !job.Poll()) {
      job.Abandon();
      return {.status = static_cast<int>(ExitStatus::kPeer),
              .error = fmt::format("the ranks have ended, and {} waits for a machine that does not "
                                   "answer: it was killed",
                                   program.name),
              .by_user = asked_ || ended_by_ != 0,
              .met = true};
    }
    if (signal == SIGUSR1) job.Send(signal);
    if (signal != 0) OnSignal(signal);
    if (patient_for_ != 0 && ends_ == 0 && !relay.Has(Sign::kTrains) &&
        Clock::now() > patient_until_) {
      EndAtOnce(patient_for_);
    }
    if (ends > 0 && ends_ == 1 && Clock::now() > killed_at_) ++ends_;
    if (ends_ > ends) {
      job.Send(ends == 0 ? program.end_at_once : SIGKILL);
      ends = ends_;
    } else if (asked_ && !told && relay.Has(Sign::kMet) && !relay.Has(Sign::kLeaves)) {
      // After kLeaves no SIGUSR2 is sent, because it would kill an mpirun that is about to end.
      job.Send(SIGUSR2);
      told = true;
    }
  }
  relay.Finish();
  const bool by_user = asked_ || ended_by_ != 0;
  const std::string wrong = WhatIsWrong(program, *end, relay);
  // The mpirun of Open MPI 5 ends with status 0 if it has lost a machine, also if a rank has printed the error.
  const bool is_cut_off = end->signal == 0 && end->code == 0 && !relay.Has(Sign::kLeaves);
  const int status = is_cut_off && ended_by_ != 0   ? 128 + ended_by_
                     : is_cut_off || !wrong.empty() ? static_cast<int>(ExitStatus::kPeer)
                                                    : StatusOf(*end);
  return {.status = status,
          .error = wrong,
          .by_user = by_user,
          // If a signal kills a rank, mpirun returns 128 + the signal. For its own failures mpirun
          // returns 1, or a status above 128 + SIGRTMAX.
          .rank_killed = end->code > 128 && end->code <= 128 + SIGRTMAX,
          .met = relay.Has(Sign::kMet),
          .output_error = relay.output_error()};
}

// Returns an error message about how the job ended; an empty string if the job ended regularly, if this process ended
// the job at once, or if an error was printed already.
std::string Supervisor::WhatIsWrong(const Program& program, const ChildProcess::End& end,
                                    const Relay& relay) const {
  if (ended_by_ != 0 || relay.has_error()) return "";
  if (end.signal != 0) {
    return fmt::format("{} was killed by signal {} ({}), and all of the job with it", program.name,
                       end.signal, strsignal(end.signal));
  }
  const bool by_rank = std::ranges::find(kStatuses, end.code) != std::end(kStatuses);
  const bool is_well = end.code == static_cast<int>(ExitStatus::kDone);
  const std::string said = OnOneLine(relay.held());
  const std::string unusual = WhatMpirunMayStumbleOver();
  const std::string why = fmt::format("{}{}{}{}", said.empty() ? "" : ": it says: ", said,
                                      unusual.empty() ? "" : "; what may be the cause: ", unusual);
  if (is_well && relay.Has(Sign::kLeaves)) return "";
  if (!relay.Has(Sign::kMet) && program.launches) {
    return fmt::format("{} ended with status {} before the ranks had met{}", program.name, end.code,
                       why);
  }
  // An mpirun that has lost a machine ends with a status that no rank and no signal gives, or with 0.
  const bool is_cut_off = is_well || end.code > 128 + SIGRTMAX;
  const std::string page_says = MachineLostIn(relay.held());
  const std::string machine = page_says.empty() ? relay.lost() : page_says;
  if (is_cut_off && !machine.empty()) {
    return fmt::format(
        "{} has lost {}: the machine, its network or the daemon there (orted; Open MPI 5: prted) "
        "is gone",
        program.name, machine);
  }
  if (is_well) {
    return fmt::format("{} ended with status 0, and the job has not come to its end", program.name);
  }
  // The statuses of ranks have printed their error, and so has the job if its user asked it to stop.
  if (by_rank || asked_) return "";
  const int signal = end.code - 128;
  if (signal > 0 && signal <= SIGRTMAX) {
    // Usually the watchdogs of the other ranks print the error.
    return fmt::format("{} ended with status {}: signal {} ({}) ended a rank", program.name,
                       end.code, signal, strsignal(signal));
  }
  return fmt::format(
      "{} ended with status {}, which says that a rank was ended by its model's own "
      "code or the launcher failed{}",
      program.name, end.code, why);
}

std::optional<Supervisor::End> Supervisor::Pause(double seconds) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    const double left = std::chrono::duration<double>(until - Clock::now()).count();
    const int signal = taken_.Wait(std::max(left, 0.0));
    if (signal != 0) OnSignal(signal);
    if (asked_ || ended_by_ != 0) {
      return End{.status = StatusOf({.code = static_cast<int>(ExitStatus::kStopped)}),
                 .error = "",
                 .by_user = true};
    }
    if (signal == 0 && left <= 0) return std::nullopt;
  }
}

void Supervisor::OnSignal(int signal) {
  if (signal == SIGCHLD || signal == SIGUSR1) return;
  const bool demands = signal == SIGTERM || signal == SIGINT;
  if (demands) ++demands_;
  // A second SIGHUP does not end the job at once, because a terminal that closes sends SIGHUP twice.
  if (signal == SIGQUIT || (demands && demands_ > 1)) EndAtOnce(signal);
  if (signal != SIGUSR2 && patient_for_ == 0) {
    patient_for_ = signal;
    patient_until_ = Clock::now() + kPatience;
  }
  asked_ = true;
  if (signal == SIGINT) interrupted_ = true;
}

void Supervisor::EndAtOnce(int signal) {
  ended_by_ = signal;
  ++ends_;
  if (ends_ == 1) killed_at_ = Clock::now() + kPatience;
}

int Supervisor::StatusOf(const ChildProcess::End& end) const {
  if (end.signal != 0) return 128 + ended_by_;
  // If the job was ended at once, mpirun returns 1, or 128 + the signal that killed a rank.
  if (ended_by_ != 0 && (end.code == 1 || end.code > 128)) return 128 + ended_by_;
  // A command that does not handle SIGUSR2, with which a job is asked to stop, ends by it.
  const bool has_stopped =
      end.code == static_cast<int>(ExitStatus::kStopped) || (asked_ && end.code == 128 + SIGUSR2);
  if (has_stopped) {
    return static_cast<int>(interrupted_ ? ExitStatus::kInterrupted : ExitStatus::kStopped);
  }
  return JobStatus(end.code);
}

int JobStatus(int code) {
  if (code == static_cast<int>(ExitStatus::kInterrupted)) return code;
  return code > 128 ? static_cast<int>(ExitStatus::kPeer) : code;
}

}  // namespace lockstep
