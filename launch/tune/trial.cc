#include "launch/tune/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/files/atomic_file.h"
#include "base/files/scratch_folder.h"
#include "config/config.h"
#include "launch/job/early_signals.h"
#include "launch/machine/child_process.h"
#include "launch/machine/said_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr double kPatienceForEnd_s = 5;

std::string MadeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw UsageError("{}: cannot be made: {}", path, error.message());
  return path;
}

// Where a trial trains.
std::string RunFolderIn(const std::string& folder) { return folder + "/run"; }

bool IsUsage(int code, int signal) {
  return signal == 0 && code == static_cast<int>(ExitStatus::kUsage);
}

// In the error if memory ran out, and if it did with the smallest micro-batches.
constexpr std::string_view kOutOfMemory = "out of memory";
constexpr std::string_view kNothingFits = "out of memory with micro-batches of 1 sample:";

// Returns the signal that came while the program ran; 0: none. If one comes, ends the program.
int WaitFor(ChildProcess& program, const TakenSignals& taken) {
  constexpr double kLookInterval_s = 0.2;
  int asked = 0;
  double killed_at_s = HUGE_VAL;
  while (!program.Poll()) {
    const int signal = taken.Wait(kLookInterval_s);
    if (signal != 0 && signal != SIGCHLD) {
      asked = signal;
      program.Send(SIGTERM);
      killed_at_s = SecondsSinceBoot() + kPatienceForEnd_s;
    }
    if (SecondsSinceBoot() > killed_at_s) program.Send(SIGKILL);
  }
  return asked;
}

}  // namespace

TrialRunner::TrialRunner(std::vector<std::string> command, const std::string& parent)
    : command_(std::move(command)), parent_(MadeFolder(parent)) {}

TrialRunner::Ended TrialRunner::Start(config::Config config, const std::string& folder,
                                      std::vector<std::string> words,
                                      const std::vector<std::string>& more,
                                      const std::string& out) {
  if (folder.empty()) {
    throw UsageError("{}: no folder for a trial can be made in it: set run_dir", parent_);
  }
  const std::string path = folder + "/train.pbtxt";
  config.set_run_dir(RunFolderIn(folder));
  config.clear_observe();
  config.clear_profile();
  config.clear_checkpoint();
  WriteFileAtomically(path, PrintConfig(config));
  words.insert(words.begin(), command_.begin(), command_.end());
  words.push_back(path);
  words.insert(words.end(), more.begin(), more.end());
  Ended ended;
  const SaidFile output(out);
  const SaidFile said(folder + "/said.txt");
  const double began_s = SecondsSinceBoot();
  ChildProcess program(words, ChildProcess::Group::kOwn, output.descriptor(), MaskAtStart(),
                       said.descriptor());
  const int signal = WaitFor(program, taken_);
  const ChildProcess::End end = program.Wait();
  ended.wall_s = SecondsSinceBoot() - began_s;
  ended.code = end.code;
  ended.signal = end.signal;
  if (signal != 0) {
    ended.stopped = signal == SIGINT ? ExitStatus::kInterrupted : ExitStatus::kStopped;
  }
  if (ended.stopped || (end.signal == 0 && end.code == 0)) return ended;
  ended.line = said.LastError();
  if (ended.line.empty()) ended.line = fmt::format("the trial ended with status {}", end.code);
  return ended;
}

void TrialRunner::Fail(const Ended& ended) {
  throw Error(ended.signal != 0 ? ExitStatus::kPeer : static_cast<ExitStatus>(ended.code),
              fmt::format("a trial failed: {}", ended.line));
}

Trial TrialRunner::Run(config::Config config) {
  const ScratchFolder scratch(parent_);
  const Ended ended = Start(std::move(config), scratch.path(), {"train"}, {}, "/dev/null");
  RunLog log(RunFolderIn(scratch.path()), RunLog::Keep::kAllSteps);
  log.Read();
  Trial trial{
      .log = log.run(), .wall_s = ended.wall_s, .failure = ended.line, .stopped = ended.stopped};
  // A loss that is not finite ends a training after some steps.
  if (!trial.failure.empty() && !(IsUsage(ended.code, ended.signal) && trial.log.step > 0)) {
    Fail(ended);
  }
  return trial;
}

TrialRunner::Measured TrialRunner::Bench(config::Config config, const std::string& what,
                                         std::vector<std::string> more) {
  const ScratchFolder scratch(parent_);
  const std::string out = scratch.path() + "/measured.json";
  more.emplace_back("--json");
  Measured measured{.ended = Start(std::move(config), scratch.path(), {"bench", what}, more, out)};
  const bool printed = !measured.ended.stopped && measured.ended.line.empty();
  if (printed) measured.line = nlohmann::json::parse(std::ifstream(out));
  return measured;
}

StepTrial TrialRunner::Measure(config::Config config, int warmup, int steps) {
  const auto [ended, line] =
      Bench(std::move(config), "step",
            {"--warmup", std::to_string(warmup), "--steps", std::to_string(steps)});
  StepTrial trial{.wall_s = ended.wall_s, .failure = ended.line, .stopped = ended.stopped};
  if (trial.stopped) return trial;
  if (!trial.failure.empty()) {
    const bool lacked_memory =
        IsUsage(ended.code, ended.signal) && trial.failure.find(kOutOfMemory) != std::string::npos;
    // Libraries' kernels fail with micro-batches that they were not written for.
    const bool failed_on_device =
        ended.signal == 0 && ended.code == static_cast<int>(ExitStatus::kBug);
    if (!lacked_memory && !failed_on_device) Fail(ended);
    trial.nothing_fits = trial.failure.find(kNothingFits) != std::string::npos;
    return trial;
  }
  trial.ranks = line.at("ranks");
  trial.micro_batch = line.at("batch");
  trial.accumulation = line.at("accum");
  trial.samples = line.at("samples");
  trial.parameters = line.at("params");
  std::string precision = line.at("precision");
  std::ranges::transform(precision, precision.begin(),
                         [](unsigned char c) { return std::toupper(c); });
  config::Precision_Parse(precision, &trial.precision);
  trial.samples_per_s = line.at("samples_per_s");
  trial.step_ms = line.at("step_ms");
  trial.peak_gib = line.at("peak_gib");
  trial.left_gib = line.value("left_gib", 0.0);
  trial.device_gib = line.value("device_gib", 0.0);
  trial.of_peak = line.value("of_peak", 0.0);
  return trial;
}

LoaderTrial TrialRunner::MeasureLoader(config::Config config, double most_s, bool cold) {
  std::vector<std::string> more{"--seconds", fmt::format("{}", most_s)};
  if (cold) more.emplace_back("--cold");
  const auto [ended, line] = Bench(std::move(config), "loader", std::move(more));
  LoaderTrial trial{.wall_s = ended.wall_s, .failure = ended.line, .stopped = ended.stopped};
  if (trial.stopped) return trial;
  if (!trial.failure.empty()) {
    // A library or memory that this way to load needs is missing.
    if (!IsUsage(ended.code, ended.signal)) Fail(ended);
    return trial;
  }
  trial.samples_per_s = line.at("samples_per_s");
  trial.threads = line.at("workers");
  trial.samples = line.at("samples");
  trial.kept_mib = line.at("kept_mib");
  trial.warm = line.at("warm");
  trial.on_gpu = line.at("device") == "cuda";
  trial.limit = line.at("limit");
  return trial;
}

}  // namespace lockstep
