#include "launch/tune/trial.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/files/atomic_file.h"
#include "base/files/scratch_folder.h"
#include "config/config.h"
#include "launch/crew/crew.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr double kPatienceForEnd_s = 5;

// Makes the folder `path` and those around it that are missing. Returns the paths of the folders that it has made, from
// the innermost out. Throws Error (kUsage).
std::vector<std::string> MakeFolders(const std::string& path) {
  std::vector<std::string> missing;
  std::error_code error;
  for (fs::path folder = path; !folder.empty() && !fs::exists(folder, error);
       folder = folder.parent_path()) {
    missing.push_back(folder);
  }
  fs::create_directories(path, error);
  if (error) throw UsageError("{}: cannot be made: {}", path, error.message());
  return missing;
}

// Returns the run folder of a trial.
std::string RunFolderIn(const std::string& folder) { return folder + "/run"; }

bool IsUsage(const JobRecord& job) { return job.status == ExitStatus::kUsage; }

}  // namespace

TrialRunner::TrialRunner(std::vector<std::string> command, const std::string& parent, double end_s)
    : command_(std::move(command)), parent_(parent), made_(MakeFolders(parent)), end_s_(end_s) {
  Crew::HoldSignals();
}

TrialRunner::~TrialRunner() {
  for (const std::string& folder : made_) rmdir(folder.c_str());
}

bool TrialRunner::HasTime() const { return SecondsSinceBoot() + shortest_s_ <= end_s_; }

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
  Crew crew({.folder = folder, .patience_s = kPatienceForEnd_s});
  const int64_t number = crew.Add({.name = "trial",
                                   .command = [words](int64_t /*place*/) { return words; },
                                   .output = out,
                                   .said = folder + "/said.txt"});
  while (crew.IsBusy()) crew.Wait();
  Ended ended{.job = crew.job(number), .line{}, .stopped{}};
  const double took_s = ended.job.seconds;
  shortest_s_ = shortest_s_ > 0 ? std::min(shortest_s_, took_s) : took_s;
  if (crew.signal() != 0) {
    ended.stopped = crew.stopped();
  } else if (ended.job.state == JobState::kFailed) {
    ended.line = ended.job.line;
  } else if (ended.job.state == JobState::kStopped) {
    ended.line =
        fmt::format("another process stopped it, status {}", static_cast<int>(ended.job.status));
  }
  return ended;
}

void TrialRunner::Fail(const Ended& ended) {
  throw Error(ended.job.status, fmt::format("a trial failed: {}", ended.line));
}

Trial TrialRunner::Run(config::Config config) {
  const ScratchFolder scratch(parent_);
  const Ended ended = Start(std::move(config), scratch.path(), {"train"}, {}, "/dev/null");
  RunLog log(RunFolderIn(scratch.path()), RunLog::Keep::kAllSteps);
  log.Read();
  Trial trial{.log = log.run(),
              .wall_s = ended.job.seconds,
              .failure = ended.line,
              .stopped = ended.stopped};
  // A usage error (kUsage) after the first step says that the loss was not finite. This failure is a result of the
  // trial; any other failure is thrown.
  if (!trial.failure.empty() && !(IsUsage(ended.job) && trial.log.step > 0)) {
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
  // If several ranks have failed, each of them has printed a line; the first line is enough.
  std::ifstream printed(out);
  std::string line;
  if (std::getline(printed, line)) {
    measured.line = nlohmann::json::parse(line, /*cb=*/nullptr, /*allow_exceptions=*/false);
  }
  return measured;
}

StepTrial TrialRunner::Measure(config::Config config, int warmup, int steps) {
  const auto [ended, line] =
      Bench(std::move(config), "step",
            {"--warmup", std::to_string(warmup), "--steps", std::to_string(steps)});
  StepTrial trial{.wall_s = ended.job.seconds, .failure = ended.line, .stopped = ended.stopped};
  if (trial.stopped) return trial;
  if (!trial.failure.empty()) {
    if (!line.is_object() || !line.contains("failure")) Fail(ended);
    const nlohmann::json& failure = line.at("failure");
    trial.nothing_fits =
        failure.at("kind") == "out_of_memory" && failure.value("micro_batch", 0) == 1;
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
  LoaderTrial trial{.wall_s = ended.job.seconds, .failure = ended.line, .stopped = ended.stopped};
  if (trial.stopped) return trial;
  if (!trial.failure.empty()) {
    // A usage error (kUsage) says that this setting needs a library or memory that is missing. This failure is a result
    // of the trial.
    if (!IsUsage(ended.job)) Fail(ended);
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
