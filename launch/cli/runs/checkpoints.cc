// lockstep checkpoints, verify, checkpoint and stop: what a user asks of a run: about its checkpoints, and of the job
// that trains it.
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/open_file.h"
#include "base/files/safetensors.h"
#include "base/say.h"
#include "ckpt/checkpoint.h"
#include "ckpt/run_lock.h"
#include "ckpt/saver.h"
#include "ckpt/weights.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/runs/ask_job.h"
#include "observe/metric_order.h"
#include "trainer/run/run_folder.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kInterval{50};

// -1: there is none.
int64_t NewestStep(const std::string& run_dir) {
  const std::vector<Checkpoint> checkpoints = ListCheckpoints(run_dir);
  return checkpoints.empty() ? -1 : checkpoints.front().step;
}

struct Tally {
  size_t seen = 0;
  size_t damaged = 0;
};

// Prints what `line_of` says of each checkpoint, or its error. Throws Error where there were some, with those of
// `tally`, which were seen before.
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
      // A run that trains removes old ones.
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

// Prints a line for each, the newest first: step, bytes, ranks that wrote it, the brief metrics of the evaluation before
// it and the one by which checkpoints are kept, and whether it is the best. Throws Error (kCheckpoint) where there are
// none.
void PrintCheckpoints(const std::string& run_dir) {
  const std::optional<Checkpoint> best = BestCheckpoint(run_dir);
  PrintEach(run_dir, {}, [&](const Checkpoint& checkpoint) {
    const checkpoint::Manifest manifest = ReadManifest(checkpoint);
    std::string line =
        fmt::format("step {}  {} bytes of {} rank{}", checkpoint.step, BytesOf(manifest),
                    manifest.ranks(), manifest.ranks() == 1 ? "" : "s");
    for (const checkpoint::Metric& metric : manifest.metric()) {
      if (!IsBrief(metric.name()) && metric.name() != manifest.best_metric()) continue;
      line += fmt::format("  {} {:.4f}", metric.name(), metric.value());
    }
    if (best && best->step == checkpoint.step) line += "  best " + manifest.best_metric();
    return line;
  });
}

// Reads all bytes of all and prints a line for each. Throws Error (kCheckpoint) where one is damaged, or there are
// none.
void VerifyCheckpoints(const std::string& run_dir) {
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

// Has the job that trains in the folder save its state, and returns once that is committed; prints its path. Throws
// Error (kUsage) where none trains there, (kCheckpoint) where it could not.
void RequestCheckpoint(const std::string& run_dir) {
  const int64_t before = NewestStep(run_dir);
  AskJob(run_dir, RequestPath(run_dir));
  const int64_t after = NewestStep(run_dir);
  if (after <= before) {
    throw CheckpointError("{}: there is no new checkpoint: {}/log.jsonl says why", run_dir,
                          run_dir);
  }
  Print("{}\n", CheckpointOf(run_dir, after).path);
}

// Has the job that trains in the folder save its state and end, and returns once it has; prints the checkpoint's path.
// Throws Error (kUsage) where none trains there.
void RequestStop(const std::string& run_dir) {
  AskJob(run_dir, StopPath(run_dir));
  while (RunLock::IsHeld(run_dir)) std::this_thread::sleep_for(kInterval);
  const int64_t newest = NewestStep(run_dir);
  if (newest >= 0) Print("{}\n", CheckpointOf(run_dir, newest).path);
}

// A command whose one argument is a run's folder.
class RunFolderCommand final : public LocalCommand {
 public:
  RunFolderCommand(CLI::App& app, const std::string& name, const std::string& what,
                   void (*run)(const std::string& run_dir))
      : LocalCommand(app, name, what), run_(run) {
    options().Add("RUN", run_dir_, "run folder").Required();
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    run_(run_dir_);
    return ExitStatus::kDone;
  }

  void (*run_)(const std::string& run_dir);
  std::string run_dir_;
};

}  // namespace

std::unique_ptr<Command> NewCheckpointsCommand(CLI::App& app) {
  return std::make_unique<RunFolderCommand>(app, "checkpoints", "a run's checkpoints",
                                            PrintCheckpoints);
}

std::unique_ptr<Command> NewVerifyCommand(CLI::App& app) {
  return std::make_unique<RunFolderCommand>(app, "verify", "whether a run's checkpoints are whole",
                                            VerifyCheckpoints);
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
