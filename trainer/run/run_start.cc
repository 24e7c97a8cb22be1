#include "trainer/run/run_start.h"

#include <ATen/core/Tensor.h>

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
                   const std::string& from, int64_t restarts, const std::string& job,
                   const World& world) {
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
  if (!start.checkpoint || start.manifest.metric_definitions() >= kMetricDefinitions) return {};
  const config::Data& data = config.data();
  std::vector<std::string> lines;
  const auto follow = [&](const char* field, std::string& metric) {
    if (data.task() == config::Data::MULTI_LABEL && metric == "accuracy") {
      metric = "label_accuracy";
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
  follow("early_stopping.metric", *config.mutable_early_stopping()->mutable_metric());
  follow("checkpoint.keep_best", *config.mutable_checkpoint()->mutable_keep_best());
  return lines;
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
                                 const std::vector<NamedTensor>& model) {
  std::vector<std::string> facts = DataFacts(train);
  if (validation != nullptr) {
    facts.push_back(fmt::format("{} validation samples", validation->size()));
  }
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
