// lockstep bench scaling: measures how a config's step time changes with the number of ranks.
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/files/scratch_folder.h"
#include "base/round.h"
#include "base/say.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/rank_command.h"
#include "launch/cli/machine/bench.h"
#include "launch/job/early_signals.h"
#include "launch/job/mpirun.h"
#include "launch/job/supervisor.h"
#include "launch/machine/child_process.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Runs `PROGRAM bench step ARGUMENTS` with 1, 2, 4, ... and `ranks` ranks on `machines`, and prints how the step time
// changes. `global_batch` is the value in the config. If `weak` is true, a run with N ranks has a global batch of N *
// `global_batch`; otherwise each run has `global_batch`. Returns 0, or the exit status of the first run that fails.
// Throws Error.
int BenchScaling(int ranks, const Machines& machines, int64_t global_batch,
                 const std::string& program, const std::vector<std::string>& arguments, int steps,
                 bool weak, bool json) {
  std::vector<int> counts;
  for (int count = 1; count < ranks; count *= 2) counts.push_back(count);
  counts.push_back(ranks);
  RequireMpirun();
  std::optional<ScratchFolder> scratch;
  if (machines.one()) KeepMpirunsFilesIn(scratch.emplace().path());
  Json first;
  for (const int count : counts) {
    std::vector<std::string> words{"bench", "step"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    words.insert(words.end(), {"--json", "--steps", std::to_string(steps)});
    if (weak) {
      words.insert(words.end(), {"--set", fmt::format("global_batch={}", global_batch * count)});
    }
    std::string output;
    const ChildProcess::End end =
        RunAndRead(MpirunCommand(count, machines, program, words, {}), output);
    if (end.signal != 0) return static_cast<int>(ExitStatus::kPeer);
    if (end.code != 0) return JobStatus(end.code);
    Json line = Json::parse(output, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) {
      throw PeerError("mpirun ended with status 0, and the ranks have measured nothing");
    }
    if (first.empty()) {
      first = line;
      if (!json) {
        Print("{}: {}\n", line["device"].get<std::string>(),
              weak ? "the same batch for each rank" : "the same batch for all together");
        Print("{:>6} {:>12} {:>10} {:>12} {:>9} {:>11} {:>14}\n", "ranks", "global batch",
              "step ms", "samples/s", "speed-up", "efficiency", "exchange");
      }
    }
    const double speed_up =
        line["samples_per_s"].get<double>() / first["samples_per_s"].get<double>();
    line["speed_up"] = Round(speed_up, 3);
    line["efficiency"] = Round(speed_up / count, 3);
    line["exchange_share"] =
        Round(line["phases_ms"]["exchange"].get<double>() / line["step_ms"].get<double>(), 4);
    if (json) {
      Print("{}\n", line.dump());
    } else {
      Print("{:>6} {:>12} {:>10.3f} {:>12.0f} {:>8.2f}x {:>10.1f}% {:>13.1f}%\n", count,
            line["global_batch"].get<int64_t>(), line["step_ms"].get<double>(),
            line["samples_per_s"].get<double>(), speed_up, 100 * speed_up / count,
            100 * line["exchange_share"].get<double>());
    }
    std::fflush(stdout);
  }
  return static_cast<int>(ExitStatus::kDone);
}

// `lockstep bench scaling`. This class derives from Command and not from RankCommand, because it starts several jobs
// itself, one after the other.
class ScalingCommand final : public Command {
 public:
  explicit ScalingCommand(CLI::App& app)
      : Command(BenchGroup(app), "scaling",
                "step time of a config on 1, 2, 4, ... ranks, up to -n") {
    options().Add("--weak", weak_, "global_batch for each rank instead of all together");
    config_.AddFile(options()).Required();
    options().Add("--steps", steps_, "steps to time").Within(1, 100'000).ShowDefault();
    AddJson(options(), json_);
    config_.AddSet(options());
  }

  int Run(const Invocation& invocation) override {
    LetEarlySignalsCome();
    const std::string about_starting = invocation.start.First();
    if (!about_starting.empty() && about_starting != "-n") {
      throw UsageError("{}: bench scaling starts its jobs itself, on this machine: -n 8",
                       about_starting);
    }
    if (Job::IsRank()) {
      throw UsageError("bench scaling inside mpirun or srun: it starts ranks itself");
    }
    const config::Config config = config_.Load();
    const int gpus = config.device() == config::Config::CPU ? 0 : c10::cuda::device_count();
    const int wanted = invocation.start.RanksWanted();
    const int ranks = wanted > 0 ? wanted : (gpus > 0 ? gpus : 2);
    std::vector<std::string> arguments{config_.path};
    for (const std::string& assignment : config_.assignments) {
      arguments.insert(arguments.end(), {"--set", assignment});
    }
    return BenchScaling(ranks, MachinesFor(invocation.start.hosts), config.global_batch(),
                        invocation.program, arguments, steps_, weak_, json_);
  }

 private:
  ConfigOptions config_;
  int steps_ = 50;
  bool weak_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewBenchScalingCommand(CLI::App& app) {
  return std::make_unique<ScalingCommand>(app);
}

}  // namespace lockstep
