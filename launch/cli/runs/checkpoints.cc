// lockstep checkpoints and verify: list and check the checkpoints of a run. lockstep checkpoint and stop: ask the job
// that trains a run to save its state, or to save its state and end.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/open_file.h"
#include "base/files/safetensors.h"
#include "base/say.h"
#include "ckpt/checkpoint.h"
#include "ckpt/saver.h"
#include "ckpt/weights.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/runs/ask_job.h"
#include "observe/history/crew_file.h"
#include "observe/history/training_folder.h"
#include "observe/metric_order.h"
#include "trainer/run/run_folder.h"

namespace lockstep {
namespace {

// Returns the step of the newest checkpoint; -1 if there is none.
int64_t NewestStep(const std::string& run_dir) {
  const std::vector<Checkpoint> checkpoints = ListCheckpoints(run_dir);
  return checkpoints.empty() ? -1 : checkpoints.front().step;
}

struct Tally {
  size_t seen = 0;
  size_t damaged = 0;
};

// Prints for each checkpoint the line that `line_of` returns, or the message of the Error that `line_of` throws.
// `tally` counts the files that the caller has checked before. Throws Error (kCheckpoint) if any checkpoint or any of
// these files is damaged, or if there are no checkpoints and no such files.
void PrintEach(const std::string& run_dir, Tally tally,
               const std::function<std::string(const Checkpoint&)>& line_of) {
  const std::vector<Checkpoint> checkpoints = ListCheckpoints(run_dir);
  if (checkpoints.empty() && tally.seen == 0) {
    throw CheckpointError("{}: no run's folder with checkpoints", run_dir);
  }
  for (const Checkpoint& checkpoint : checkpoints) {
    try {
      Print("{}\n", line_of(checkpoint));
      ++tally.seen;
    } catch (const Error& error) {
      // The checkpoint may have been removed after it was listed, because a job that trains removes old checkpoints.
      if (!std::filesystem::exists(checkpoint.path)) continue;
      ++tally.seen;
      ++tally.damaged;
      Print("{}\n", error.what());
    }
  }
  if (tally.damaged > 0) {
    throw CheckpointError("{}: {} of {} are damaged", run_dir, tally.damaged, tally.seen);
  }
}

// Prints a line for each checkpoint, the newest first: its step, its size in bytes, the number of ranks that wrote it,
// the most important metrics of the last evaluation, the metric by which the best checkpoint is chosen, and whether the
// checkpoint is the best one. Each line begins with `prefix`. Throws Error (kCheckpoint) if there are no checkpoints,
// or if one of them is damaged.
void PrintCheckpoints(const std::string& run_dir, const std::string& prefix) {
  const std::optional<Checkpoint> best = BestCheckpoint(run_dir);
  PrintEach(run_dir, {}, [&](const Checkpoint& checkpoint) {
    const checkpoint::Manifest manifest = ReadManifest(checkpoint);
    std::string line = prefix;
    line += fmt::format("step {}  {} bytes of {} rank{}", checkpoint.step, BytesOf(manifest),
                        manifest.ranks(), manifest.ranks() == 1 ? "" : "s");
    for (const checkpoint::Metric& metric : manifest.metric()) {
      if (!IsBrief(metric.name()) && metric.name() != manifest.best_metric()) continue;
      if (std::isnan(metric.value())) continue;  // the metric is not defined for the samples
      line += fmt::format("  {} {:.4f}", metric.name(), metric.value());
    }
    if (best && best->step == checkpoint.step) line += "  best " + manifest.best_metric();
    return line;
  });
}

// Reads all checkpoints and the weights file of a run completely, and prints a line for each file. Throws Error
// (kCheckpoint) if one of the files is damaged, or if there are no files.
void VerifyCheckpoints(const std::string& run_dir, const std::string& /*prefix*/) {
  Tally tally;
  const std::string weights = RunWeightsPath(run_dir);
  if (std::filesystem::exists(weights)) {
    tally.seen = 1;
    try {
      ReadSafetensors(weights, kInRunFolder);
      Print("{}: whole\n", weights);
    } catch (const Error& error) {
      tally.damaged = 1;
      Print("{}\n", error.what());
    }
  }
  PrintEach(run_dir, tally, [](const Checkpoint& checkpoint) {
    const checkpoint::Manifest manifest = ReadManifest(checkpoint);
    RequireFiles(checkpoint, manifest);
    VerifyCheckpoint(checkpoint, manifest);
    return fmt::format("{}: whole", checkpoint.path);
  });
}

bool HasBegun(const std::string& fold) { return KindOf(fold) == FolderKind::kRun; }

// Calls `print` for the run, or for each fold of a cross-validation that has begun. If it throws for some folds, prints
// their messages, and throws the last error in the end.
void ForEachRun(const std::string& folder,
                void (*print)(const std::string& run_dir, const std::string& prefix)) {
  if (KindOf(folder) != FolderKind::kCrossValidation) return print(folder, "");
  const std::vector<std::string> folds = FoldFolders(folder);
  std::optional<Error> failure;
  if (std::ranges::none_of(folds, HasBegun)) print(folds.front(), "");
  for (size_t fold = 0; fold < folds.size(); ++fold) {
    if (!HasBegun(folds[fold])) continue;
    try {
      print(folds[fold], fmt::format("fold {}: ", fold));
    } catch (const Error& error) {
      if (failure) PrintError(failure->what());
      failure = error;
    }
  }
  if (failure) throw *failure;
}

// Asks the job that trains in `folder` to write a checkpoint, waits until the checkpoint is complete, and prints the
// path of the checkpoint. For a cross-validation it asks all folds that train now. Throws Error: kUsage if no job
// trains in `folder`, kCheckpoint if there is no new checkpoint.
void RequestCheckpoint(const std::string& folder) {
  std::vector<std::string> runs = RunFoldersOf(folder);
  std::erase_if(runs, [](const std::string& run) { return !HasJob(run); });
  if (runs.empty()) FailWithoutJob(folder);
  std::map<std::string, int64_t> before;
  for (const std::string& run : runs) before[run] = NewestStep(run);
  AskJobs(runs, &RequestPath);
  std::string without;
  for (const std::string& run : runs) {
    const int64_t after = NewestStep(run);
    if (after > before[run]) {
      Print("{}\n", CheckpointOf(run, after).path);
    } else if (HasJob(run) || runs.size() == 1) {
      without = run;  // a fold that has ended meanwhile needs no checkpoint
    }
  }
  if (without.empty()) return;
  throw CheckpointError("{}: there is no new checkpoint: {}/log.jsonl says why", without, without);
}

// Asks the job that trains in `folder` to save its state and end, waits until the job has ended, and prints the path of
// the newest checkpoint, if there is one; for a cross-validation that of each fold. Throws Error (kUsage) if no job
// trains in `folder`.
void RequestStop(const std::string& folder) {
  const std::vector<std::string> runs = RunFoldersOf(folder);
  std::vector<std::string> jobs{folder};
  if (KindOf(folder) == FolderKind::kCrossValidation && !CrewFile::HasCrew(folder)) {
    jobs = runs;  // each fold is a job of its own
    std::erase_if(jobs, [](const std::string& run) { return !HasJob(run); });
    if (jobs.empty()) FailWithoutJob(folder);
  }
  AskJobs(jobs, &StopPath);
  WaitForEnd(folder);
  for (const std::string& run : runs) {
    const int64_t newest = NewestStep(run);
    if (newest >= 0) Print("{}\n", CheckpointOf(run, newest).path);
  }
}

// A command whose only argument is the folder of a run or of a cross-validation.
class RunFolderCommand final : public LocalCommand {
 public:
  RunFolderCommand(CLI::App& app, const std::string& name, const std::string& what,
                   void (*run)(const std::string& folder))
      : LocalCommand(app, name, what), run_(run) {
    options().Add("RUN", folder_, "run folder").Required();
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    run_(folder_);
    return ExitStatus::kDone;
  }

  void (*run_)(const std::string& folder);
  std::string folder_;
};

}  // namespace

std::unique_ptr<Command> NewCheckpointsCommand(CLI::App& app) {
  return std::make_unique<RunFolderCommand>(
      app, "checkpoints", "a run's checkpoints",
      [](const std::string& folder) { ForEachRun(folder, &PrintCheckpoints); });
}

std::unique_ptr<Command> NewVerifyCommand(CLI::App& app) {
  return std::make_unique<RunFolderCommand>(
      app, "verify", "whether a run's checkpoints are whole",
      [](const std::string& folder) { ForEachRun(folder, &VerifyCheckpoints); });
}

std::unique_ptr<Command> NewCheckpointCommand(CLI::App& app) {
  return std::make_unique<RunFolderCommand>(
      app, "checkpoint", "have the job that trains in a run folder save its state",
      RequestCheckpoint);
}

std::unique_ptr<Command> NewStopCommand(CLI::App& app) {
  return std::make_unique<RunFolderCommand>(
      app, "stop", "have the job that trains in a run folder save its state and end", RequestStop);
}

}  // namespace lockstep
