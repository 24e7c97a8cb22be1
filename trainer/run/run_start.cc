#include "trainer/run/run_start.h"

#include <ATen/core/Tensor.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/host_name.h"
#include "ckpt/run_lock.h"
#include "ckpt/saver.h"
#include "ckpt/weights.h"
#include "comm/together.h"
#include "config/config.h"
#include "config/config_differences.h"
#include "observe/history/run_log.h"
#include "observe/history/training_folder.h"
#include "trainer/run/made_of.h"

namespace lockstep {
namespace {

// Verifies `checkpoint`, of which each rank reads a part, and returns the checkpoint's manifest. Every rank must call
// it. Throws Error (kCheckpoint) on every rank if the checkpoint is damaged.
checkpoint::Manifest Verified(const Checkpoint& checkpoint, const World& world) {
  checkpoint::Manifest manifest;
  Together(world.host, [&] {
    manifest = ReadManifest(checkpoint);
    RequireFiles(checkpoint, manifest);
    VerifyCheckpoint(checkpoint, manifest, world.rank(), world.size());
  });
  return manifest;
}

// Returns, on every rank, the step of the newest checkpoint that rank 0 sees in its `folder`; nothing if rank 0 sees
// none.
std::optional<int64_t> NewestStep(const std::optional<RunFolder>& folder, const World& world) {
  const std::optional<Checkpoint> own = folder ? folder->newest() : std::nullopt;
  const int64_t newest =
      FromRankZero(own ? own->step : -1, "the checkpoint to go on from", world.host);
  return newest < 0 ? std::nullopt : std::optional(newest);
}

void FindFailure(const std::string& run_dir, int64_t restarts, const World& world,
                 RunStart& start) {
  constexpr double kMilliseconds = 1000;
  int64_t failed_at_ms = 0;
  if (world.rank() == 0 && restarts > 0) {
    RunLog log(run_dir, RunLog::Keep::kLastStep);
    log.Read();
    start.failed_step = log.run().step;
    failed_at_ms = static_cast<int64_t>(kMilliseconds * log.run().last_time.value_or(0));
  }
  start.failed_step = FromRankZero(start.failed_step, "the step before the failure", world.host);
  failed_at_ms = FromRankZero(failed_at_ms, "the time of the failure", world.host);
  start.failed_at = static_cast<double>(failed_at_ms) / kMilliseconds;
}

// Throws Error (kUsage, kData) if the samples of the run of `start.checkpoint` have changed, whose config differs from
// `config` in `start.differences`. Other validation samples than those of another run only become a line of
// `start.differences`.
void CompareData(const std::vector<checkpoint::DataSet>& data, const std::string& run_dir,
                 RunStart& start) {
  const bool columns_differ = std::ranges::any_of(
      start.differences, [](const auto& line) { return line.starts_with("data.csv.column:"); });
  const bool reads_otherwise = std::ranges::any_of(
      start.differences, [](const auto& line) { return line.starts_with("data."); });
  const bool in_other_order = std::ranges::any_of(
      start.differences, [](const auto& line) { return line.ends_with(kOtherOrder); });
  for (const checkpoint::DataSet& is : data) {
    const checkpoint::DataSet* was = SetNamed(is.name(), start.manifest.data_set());
    if (was == nullptr) continue;
    std::string what = WhatDiffers(*was, is, columns_differ);
    if (!what.empty() && in_other_order) what += fmt::format(", because {},", kOtherOrder);
    const bool may_change =
        is.name() != data.front().name();  // whether the samples are not trained on
    if (may_change && start.is_of_another_run) {
      start.validates_anew |= !HaveSameSamples(*was, is);
      if (!what.empty()) start.differences.push_back(what);
      continue;
    }
    // The list of images depends on the config's classes.
    if (what.empty() || (is.file_size() == 0 && reads_otherwise)) continue;
    const std::string way_out =
        start.is_of_another_run ? "or begin from its weights alone, with init_from"
        : may_change
            ? fmt::format(
                  "go on from it in another folder with --from {}@{} --set run_dir=..., or "
                  "begin anew with --fresh",
                  run_dir, start.checkpoint->step)
            : fmt::format("or begin anew with --fresh (--set init_from={} begins with its weights)",
                          ModelFile(*start.checkpoint));
    // Another number of samples has this status where only their number is known, too (RequireSameData()).
    const bool has_as_many = is.samples() == was->samples();
    throw Error(has_as_many ? ExitStatus::kUsage : ExitStatus::kData,
                fmt::format("{} since the checkpoint {}: put the file back, {}", what,
                            start.checkpoint->path, way_out));
  }
}

// Returns the name that a metric has today which a run with `data` and metrics of `definitions` calls `metric`.
std::string NameToday(const std::string& metric, const config::Data& data, int definitions) {
  const bool has_labels = data.task() == config::Data::MULTI_LABEL;
  return definitions < kMetricDefinitions && has_labels && metric == "accuracy" ? "label_accuracy"
                                                                                : metric;
}

// The metrics by which a run judges its evaluations.
struct Judges {
  std::string early_stopping;
  std::string keep_best;
};

// Returns the metrics of the run of `start.checkpoint`, with their names of today.
Judges JudgesOf(const RunStart& start) {
  const config::Config config = ParsePrinted(start.manifest.config());
  const auto today = [&](const std::string& metric) {
    return NameToday(metric, config.data(), start.manifest.metric_definitions());
  };
  return {today(config.early_stopping().metric()), today(config.checkpoint().keep_best())};
}

// Appends a line to `lines` if the run goes on with other metrics, or other meanings of them, than the run of
// `start.checkpoint` had.
void TellOfOtherMetrics(const RunStart& start, const config::Config& config,
                        std::vector<std::string>& lines) {
  const Judges were = JudgesOf(start);
  std::vector<std::string> changes;
  const auto compare = [&](const char* field, const std::string& was, const std::string& is) {
    if (was.empty() || is.empty() || was == is) return;
    changes.push_back(fmt::format("{} is {} where it was {}", field, is, was));
  };
  compare("early_stopping.metric", were.early_stopping, config.early_stopping().metric());
  const std::string& stops_by = config.early_stopping().metric();
  if (!stops_by.empty() && stops_by == were.early_stopping && !EvaluationsCount(start, config)) {
    changes.push_back(
        fmt::format("early_stopping.metric {} is {}", stops_by,
                    start.validates_anew ? "of other validation samples" : "by another loss"));
  }
  compare("checkpoint.keep_best", were.keep_best, config.checkpoint().keep_best());
  if (changes.empty()) return;
  lines.push_back(fmt::format("{}: the best value and the evaluations since are counted anew",
                              fmt::join(changes, ", and ")));
}

}  // namespace

std::future<void> ReadCheckpointAhead(const std::string& run_dir, const World& world) {
  return std::async(std::launch::async, [run_dir, rank = world.rank(), ranks = world.size()] {
    try {
      ReadAhead(FindCheckpoint(run_dir), rank, ranks);
    } catch (const std::exception&) {
      // Either there is no checkpoint, or the code that later reads the checkpoint will report the error.
    }
  });
}

std::string NameJob(const std::string& given, const World& world) {
  const auto number =
      given.empty() ? static_cast<int64_t>(std::random_device()()) : std::stoll(given, nullptr, 16);
  return fmt::format("{:08x}", FromRankZero(number, "the job's name", world.host));
}

void RequireSharedFolder(const std::string& run_dir, const std::string& job, const World& world) {
  // A network file system may show a new file only after some seconds, so each rank waits for up to kLate.
  constexpr std::chrono::seconds kLate{10};
  constexpr std::chrono::milliseconds kInterval{50};
  Together(world.host, [&] {
    const auto deadline = std::chrono::steady_clock::now() + kLate;
    while (!RunLock::IsOf(run_dir, job)) {
      if (std::chrono::steady_clock::now() > deadline) {
        throw UsageError(
            "{}: the folder of that name on {} is not the one that rank 0 has: give all ranks one "
            "that lies on a disk that their machines share, with --set run_dir=...",
            run_dir, HostName());
      }
      std::this_thread::sleep_for(kInterval);
    }
  });
}

RunStart FindStart(std::optional<RunFolder>& folder, const config::Config& config,
                   const std::vector<checkpoint::DataSet>& data, const std::string& from,
                   int64_t restarts, const std::string& job, const World& world) {
  RunStart start{.job = job};
  FindFailure(config.run_dir(), restarts, world, start);
  while (const std::optional<int64_t> step = NewestStep(folder, world)) {
    start.checkpoint = CheckpointOf(config.run_dir(), *step);
    try {
      start.manifest = Verified(*start.checkpoint, world);
      break;
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kCheckpoint) throw;
      start.checkpoint.reset();
      if (folder) folder->Reject(error.what());
    }
  }
  const auto compare = [&] {
    if (!start.checkpoint) return;
    start.differences = Differences(ParsePrinted(start.manifest.config()), config);
    CompareData(data, config.run_dir(), start);
  };
  Together(world.host, [&] {
    compare();
    if (folder) folder->Accept(start.differences);
  });
  if (start.checkpoint || from.empty()) return start;
  // The other run may still be training and saving checkpoints, so rank 0 alone decides which one is the newest.
  int64_t step = 0;
  Together(world.host, [&] {
    if (world.rank() != 0) return;
    RefuseFolds(ParseRunPoint(from).run_dir);
    step = FindCheckpoint(from).step;
  });
  step = FromRankZero(step, "the checkpoint to begin from", world.host);
  start.checkpoint = CheckpointOf(ParseRunPoint(from).run_dir, step);
  start.manifest = Verified(*start.checkpoint, world);
  start.is_of_another_run = true;
  Together(world.host, compare);
  return start;
}

int MetricDefinitionsOf(const RunStart& start, const config::Config& config) {
  // Only the accuracy of several labels has got another name, which a run must remember.
  const bool has_labels = config.data().task() == config::Data::MULTI_LABEL;
  return start.checkpoint && has_labels ? start.manifest.metric_definitions() : kMetricDefinitions;
}

std::vector<std::string> FollowMetrics(const RunStart& start, config::Config& config) {
  std::vector<std::string> lines;
  if (!start.checkpoint) return lines;
  const config::Data& data = config.data();
  const int definitions = start.manifest.metric_definitions();
  const auto follow = [&](const char* field, std::string& metric) {
    if (std::string today = NameToday(metric, data, definitions); today != metric) {
      metric = std::move(today);
      lines.push_back(fmt::format(
          "{}: accuracy was the share of right labels when the run began, and is that of samples "
          "whose labels are all right today: the run goes on with label_accuracy, as it began",
          field));
    }
    const bool has_roots = metric == "rmse" || metric == "rmsle";
    if (data.task() == config::Data::REGRESSION && data.classes() > 1 && has_roots) {
      lines.push_back(fmt::format(
          "{}: {} was the root of the mean over all {} columns when the run began, and is the mean "
          "of the columns' roots today, which is never greater",
          field, metric, data.classes()));
    }
  };
  if (definitions < kMetricDefinitions) {
    follow("early_stopping.metric", *config.mutable_early_stopping()->mutable_metric());
    follow("checkpoint.keep_best", *config.mutable_checkpoint()->mutable_keep_best());
  }
  TellOfOtherMetrics(start, config, lines);
  return lines;
}

bool LossesCount(const RunStart& start) {
  return !start.validates_anew && std::ranges::none_of(start.differences, [](const auto& line) {
    return line.starts_with("loss.");
  });
}

bool EvaluationsCount(const RunStart& start, const config::Config& config) {
  const std::string& metric = config.early_stopping().metric();
  if (metric == "loss" && !LossesCount(start)) return false;
  return !start.validates_anew && JudgesOf(start).early_stopping == metric;
}

std::optional<int64_t> ResumedStep(const RunStart& start) {
  if (!start.checkpoint || start.is_of_another_run) return std::nullopt;
  return start.checkpoint->step;
}

RunResumed ResumedEvent(const RunStart& start) {
  return {.step = start.checkpoint->step,
          .checkpoint = start.checkpoint->path,
          .ranks = start.manifest.ranks(),
          .is_of_another_run = start.is_of_another_run,
          .differences = start.differences};
}

std::vector<std::string> DataFacts(const Dataset& train) {
  std::vector<std::string> facts{fmt::format("{} training samples", train.size())};
  if (std::string files = train.Fingerprint(); !files.empty()) facts.push_back(std::move(files));
  return facts;
}

std::vector<std::string> FactsOf(const Dataset& train, const Dataset* validation,
                                 const std::vector<checkpoint::DataSet>& data,
                                 const std::vector<NamedTensor>& model) {
  std::vector<std::string> facts = DataFacts(train);
  if (validation != nullptr) {
    facts.push_back(fmt::format("{} validation samples", validation->size()));
  }
  for (std::string& line : LinesOf(data)) facts.push_back(std::move(line));
  for (const auto& [name, tensor] : model) {
    facts.push_back(fmt::format("{} of {} [{}]", name, c10::toString(tensor.scalar_type()),
                                fmt::join(tensor.sizes(), ", ")));
  }
  return facts;
}

void RequireSameData(const RunStart& start, const std::vector<std::string>& now) {
  for (int i = 0; i < start.manifest.data_size(); ++i) {
    const std::string is = i < std::ssize(now) ? now[i] : "nothing";
    if (is == start.manifest.data(i)) continue;
    throw DataError("{}: {} where the run's checkpoint has {}: give it the data it began with, {}",
                    start.checkpoint->path, is, start.manifest.data(i),
                    start.is_of_another_run ? "or begin from its weights alone, with init_from"
                                            : "or begin anew with --fresh");
  }
}

}  // namespace lockstep
