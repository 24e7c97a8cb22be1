#include "launch/cli/command/rank_command.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/xxh3.h"
#include "base/say.h"
#include "base/version.h"
#include "comm/together.h"
#include "config/config.h"
#include "config/config_differences.h"
#include "launch/job/early_signals.h"
#include "launch/machine/placement.h"
#include "observe/machine/nvml.h"

namespace lockstep {
namespace {

// Returns a text that identifies this build of the program by its size and a hash. A name would not do, because two
// builds with the same name may behave differently.
std::string ProgramText() {
  try {
    const MappedFile file("/proc/self/exe");
    const std::string_view bytes(file.data(), file.bytes());
    return fmt::format("program of {} bytes with hash {:016x}", bytes.size(), Xxh3Of(bytes));
  } catch (const Error&) {
    return "program that may be started but not read";
  }
}

// Ends this rank because of an error that only this rank has. Reports the error to the other ranks, because they may be
// waiting for this rank.
[[noreturn]] void LeaveAlone(Job& job, const std::exception& exception) {
  std::fflush(stdout);
  job.Fail(ErrorOf(exception));
}

}  // namespace

int RankCommand::Run(const Invocation& invocation) {
  StartedCommand started{
      .program = invocation.program, .words = invocation.words, .prints_result = prints_result()};
  if (!invocation.start.First().empty()) {
    CheckStart(invocation.start, trains());
    Check(started);
    return StartJob(invocation.start, started);
  }
  Begin();
  LetEarlySignalsCome();
  // `job` is declared outside of the try block, because its communicators must still exist when the catch block runs.
  std::optional<Job> job;
  try {
    job.emplace();
    RequireSame({ProgramText(), "command " + name()}, job->host());
    const ExitStatus status = RunAsRank(*job, invocation);
    std::fflush(stdout);
    job->Leave();
    return static_cast<int>(status);
  } catch (const std::exception& exception) {
    const Error error = ErrorOf(exception);
    if (!job) {
      PrintError(error.what());
      std::_Exit(static_cast<int>(error.status()));
    }
    if (!error.on_every_rank()) LeaveAlone(*job, exception);
    std::fflush(stdout);
    if (job->host().rank() == 0) PrintError(error.what());
    job->Leave();
    std::_Exit(static_cast<int>(error.status()));
  }
}

void RankCommand::Check(StartedCommand&) const {}

Option ConfigOptions::AddFile(CommandOptions& options, const std::string& what) {
  return options.Add("CONFIG", path, what);
}

void ConfigOptions::AddSet(CommandOptions& options) {
  options.Add("--set", assignments, "override a field: --set optimizer.lr=0.01").OneEach();
}

config::Config ConfigOptions::Load() const { return LoadConfig(path, assignments); }

config::Config ConfigOptions::Load(Job& job) const {
  config::Config config;
  Together(job.host(), [&] { config = Load(); });
  return config;
}

config::Config ConfigOptions::Check(StartedCommand& started) const {
  config::Config config = Load();
  started.config = path;
  started.may_use_gpus = config.device() != config::Config::CPU;
  return config;
}

std::vector<NamedRun> RunsNamed(const std::string& name, const std::string& weights, Job& job) {
  std::vector<NamedRun> runs;
  Together(job.host(), [&] { runs = RunsNamed(name, weights); });
  return runs;
}

void AddDevice(CommandOptions& options, config::Config::Device& device) {
  options.AddChoice("--device", device, "cpu, cuda or auto",
                    {{"auto", config::Config::AUTO},
                     {"cpu", config::Config::CPU},
                     {"cuda", config::Config::CUDA}},
                    "auto");
}

World Connect(Job& job, config::Config::Device device) {
  World world = job.Connect(device);
  if (world.rank() == 0 && !job.what_is_narrow().empty()) Warn(job.what_is_narrow());
  return world;
}

World Connect(Job& job, const config::Config& config) {
  RequireSame(FieldLines(config), job.host());
  if (job.watchdog() != nullptr) {
    job.watchdog()->SetLimits({.collective_s = config.watchdog().collective_timeout_s(),
                               .heartbeat_s = config.watchdog().heartbeat_timeout_s()});
  }
  // CUDA reads this variable when the process first uses CUDA, which is in Connect() below.
  if (config.debug().launch_blocking()) setenv("CUDA_LAUNCH_BLOCKING", "1", /*overwrite=*/1);
  return Connect(job, config.device());
}

TrainOptions TrainOptionsOf(Job& job) {
  TrainOptions options{
      .version = kVersion,
      .live = TerminalShowsOutput(),
      .command_start_s = CommandStart(),
      .leave = [&job](const std::exception& exception) { LeaveAlone(job, exception); }};
  if (job.local_rank() == 0) {
    options.gpu_users.emplace();
    for (const int rank : RanksBeside(job.places(), job.host().rank())) {
      const Place& place = job.places()[rank];
      if (!place.has_gpu()) continue;
      options.gpu_users->push_back(
          {.uuid = UuidText(place.gpu), .pid = place.process, .rank = rank});
    }
  }
  return options;
}

}  // namespace lockstep
