#include "launch/job/start_job.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/scratch_folder.h"
#include "base/say.h"
#include "base/shell_text.h"
#include "launch/job/elastic.h"
#include "launch/job/hosts.h"
#include "launch/job/job.h"
#include "launch/job/mpirun.h"
#include "launch/job/sign.h"
#include "launch/job/supervised_job.h"
#include "launch/machine/driver.h"

namespace lockstep {
namespace {

// The environment variables of step 2 of the protocol in start_job.h.
constexpr char kCommandStart[] = "LOCKSTEP_COMMAND_START_S";  // Unix time, the same on all machines
constexpr char kEndBy[] = "LOCKSTEP_END_BY_S";                // Unix time
constexpr char kLive[] = "LOCKSTEP_LIVE";                     // set: a terminal shows the output

int RanksOn(const std::string& hosts) {
  int ranks = 0;
  for (const Host& host : ParseHosts(hosts)) ranks += host.ranks;
  return ranks;
}

void HandDown(const StartedCommand& command) {
  const double started = UnixSeconds() - (SecondsSinceBoot() - ProcessStartSeconds());
  setenv(kCommandStart, std::to_string(started).c_str(), /*overwrite=*/0);
  HandDownEnd(command.end_by_s);
  if (isatty(STDOUT_FILENO) != 0) setenv(kLive, "1", 1);
}

std::vector<std::string> HandedDown() {
  std::vector<std::string> variables{kJobName, kJobRestarts, kJobHasBegun, kCommandStart};
  for (const char* variable : {kLive, kEndBy}) {
    if (std::getenv(variable) != nullptr) variables.push_back(variable);
  }
  return variables;
}

// Starts the user's command as a job, and again after failures.
class Starting {
 public:
  Starting(const StartOptions& start, const StartedCommand& command)
      : start_(start),
        program_(command.program),
        words_(WithoutStartOptions(command.words)),
        machines_(MachinesFor(start.hosts)),
        hosts_(machines_.hosts),
        ranks_(start.RanksWanted()) {
    machines_.connector = program_;
    if (start_.elastic && machines_.kind == Machines::Kind::kSlurmJob) {
      throw UsageError(
          "--elastic in a Slurm job of several machines: leave it to Slurm (--requeue)");
    }
    job_.restarts = start.restarts;
    job_.prints_result = command.prints_result;
    job_.run_dir = command.run_dir;
    if (std::isfinite(command.end_by_s)) job_.end_by_s = OnBootClock(command.end_by_s);
    if (ranks_ > 0) {
      RequireMpirun();
      // With several machines the default folders are used, because the other machines do not have the scratch folder.
      if (machines_.one()) KeepMpirunsFilesIn(scratch_.emplace().path());
    }
    job_.program = ranks_ > 0 ? Ranks(ranks_, machines_) : OneProcess();
    if (machines_.kind == Machines::Kind::kListed) {
      job_.on_other_machines = true;
      job_.why_no_start = [this] { return WhyNoStart(hosts_); };
    }
    if (start_.elastic && machines_.kind == Machines::Kind::kListed) {
      job_.what_is_left = [this] { return OnMachinesThatWork(); };
    } else if (start_.elastic && command.may_use_gpus) {
      gpus_ = GpusHere();
      if (gpus_.empty() && VisibleGpus() > 0) {
        throw UsageError(
            "--elastic: the driver does not say which GPUs there are: set "
            "CUDA_VISIBLE_DEVICES=0,1");
      }
      job_.what_is_left = [this] { return OnGpusThatWork(); };
    }
  }

  int Run() { return RunSupervised(job_); }

 private:
  Supervisor::Program Ranks(int ranks, const Machines& on) const {
    Supervisor::Program program{.command = MpirunCommand(ranks, on, program_, words_, HandedDown()),
                                .name = "mpirun",
                                .end_at_once = SIGTERM};
    Announce(ShellText(program.command));
    return program;
  }

  Supervisor::Program OneProcess() const {
    Supervisor::Program program{
        .command = words_, .name = "lockstep", .end_at_once = SIGKILL, .launches = false};
    program.command.insert(program.command.begin(), program_);
    return program;
  }

  std::optional<Supervisor::Program> OnMachinesThatWork() {
    const Machines left{.kind = Machines::Kind::kListed,
                        .hosts = ReachableHosts(machines_.hosts),
                        .connector = program_};
    if (left.hosts.empty()) return std::nullopt;
    if (left.hosts != machines_.hosts) Warn(fmt::format("going on with {} alone", left.hosts));
    hosts_ = left.hosts;
    return Ranks(std::min(ranks_, RanksOn(left.hosts)), left);
  }

  std::optional<Supervisor::Program> OnGpusThatWork() {
    if (gpus_.empty()) return job_.program;
    const std::vector<std::string> left = WorkingGpus(gpus_, program_);
    if (left.empty()) return std::nullopt;
    const std::string list = fmt::format("{}", fmt::join(left, ","));
    if (left != gpus_) Warn(fmt::format("going on with GPU {} alone", list));
    setenv("CUDA_VISIBLE_DEVICES", list.c_str(), 1);
    return ranks_ > 0 ? Ranks(std::min(ranks_, static_cast<int>(left.size())), machines_)
                      : job_.program;
  }

  const StartOptions start_;
  const std::string program_;
  const std::vector<std::string> words_;
  Machines machines_;
  std::string hosts_;  // the machines of the ranks that were started last; empty without --hosts
  const int ranks_;
  std::optional<ScratchFolder> scratch_;
  std::vector<std::string> gpus_;
  SupervisedJob job_;
};

}  // namespace

std::string StartOptions::First() const {
  return ranks > 0        ? "-n"
         : !hosts.empty() ? "--hosts"
         : restarts > 0   ? "--restarts"
         : elastic        ? "--elastic"
                          : "";
}

int StartOptions::RanksWanted() const {
  if (hosts.empty()) return ranks;
  const int most = RanksOn(hosts);
  if (ranks > most) {
    throw UsageError(
        "-n {}: the machines of --hosts \"{}\" are for {} ranks: write node1:8,node2:8", ranks,
        hosts, most);
  }
  return ranks > 0 ? ranks : most;
}

int StartOptions::RanksHere() const {
  const int wanted = RanksWanted();
  return std::max(1, hosts.empty() ? wanted : lockstep::RanksHere(ParseHosts(hosts), wanted));
}

std::vector<std::string> WithoutStartOptions(const std::vector<std::string>& words) {
  static const std::set<std::string> kWithValue{"-n", "--ranks", "--hosts", "--restarts"};
  std::vector<std::string> others;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (kWithValue.contains(word)) {
      ++i;
    } else if (word != "--elastic" && !word.starts_with("-n") &&
               !kWithValue.contains(word.substr(0, word.find('=')))) {
      others.push_back(word);
    }
  }
  return others;
}

void CheckStart(const StartOptions& start, bool trains) {
  if (Job::IsRank()) {
    throw UsageError("{} inside mpirun or srun: leave it out, this process is a rank already",
                     start.First());
  }
  if (start.restarts > 0 && !trains) throw UsageError("--restarts: only train goes on by itself");
  if (start.elastic && start.restarts == 0) {
    throw UsageError("--elastic says how a job goes on: add --restarts 10, say");
  }
}

int StartJob(const StartOptions& start, const StartedCommand& command) {
  if (!command.config.empty() && !std::filesystem::is_regular_file(command.config)) {
    throw UsageError("{}: {} starts processes that read the config, too: give a plain file",
                     command.config, start.First());
  }
  HandDown(command);
  return Starting(start, command).Run();
}

void HandDownEnd(double end_by_s) {
  if (std::isfinite(end_by_s)) setenv(kEndBy, fmt::format("{:.3f}", end_by_s).c_str(), 1);
}

double CommandStart() {
  const char* start = std::getenv(kCommandStart);
  if (start == nullptr) return ProcessStartSeconds();
  return SecondsSinceBoot() - (UnixSeconds() - std::strtod(start, nullptr));
}

std::optional<double> EndByOfJob() {
  const char* end_by = std::getenv(kEndBy);
  return end_by == nullptr ? std::nullopt : std::optional(std::strtod(end_by, nullptr));
}

bool TerminalShowsOutput() {
  return Job::IsRank() ? std::getenv(kLive) != nullptr : isatty(STDOUT_FILENO) != 0;
}

double OnBootClock(double unix_s) { return SecondsSinceBoot() + (unix_s - UnixSeconds()); }

}  // namespace lockstep
