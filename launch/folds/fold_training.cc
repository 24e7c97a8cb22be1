#include "launch/folds/fold_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/live_line.h"
#include "base/say.h"
#include "base/shell_text.h"
#include "observe/history/training_folder.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kPlainPeriod(10);

std::string BestText(const RunHistory& history) {
  const std::optional<BestValue> best = history.best();
  return best ? fmt::format(", best {} {:.4f} at step {}", best->metric, best->value, best->step)
              : "";
}

// Makes the folder `run_dir` if it is missing, and returns its path. Throws Error (kUsage) if the folder cannot be made
// or holds a plain run or something else than folds.
std::string FolderOfFolds(const std::string& run_dir) {
  std::error_code error;
  std::filesystem::create_directories(run_dir, error);
  if (error) throw UsageError("{}: cannot be made: {}", run_dir, error.message());
  RequireRoomForFolds(run_dir);
  return run_dir;
}

}  // namespace

FoldTraining::FoldTraining(FoldPlan plan)
    : plan_(std::move(plan)),
      crew_({.folder = FolderOfFolds(plan_.run_dir),
             .places = plan_.SideBySide(),
             .stops_at_failure = true}) {}

ExitStatus FoldTraining::Train() {
  for (int64_t fold = 0; fold < plan_.count; ++fold) {
    const std::string folder = FoldRunDir(plan_.run_dir, fold);
    const std::string said = fmt::format("{}/fold-{}.txt", plan_.run_dir, fold);
    histories_.emplace_back(folder);
    crew_.Add({.name = fmt::format("fold-{}", fold),
               .command = [this, fold,
                           folder](int64_t place) { return plan_.CommandOf(fold, place, folder); },
               .output = said,
               .said = said});
  }
  LiveLine line(isatty(STDOUT_FILENO) != 0, kPlainPeriod);
  bool told = false;
  while (crew_.IsBusy()) {
    const std::vector<int64_t> ended = crew_.Wait();
    TellWarnings();
    if (crew_.signal() != 0 && !std::exchange(told, true)) {
      line.Say("stopping: the folds save their state");
    }
    for (const int64_t fold : ended) {
      if (const std::string text = TextOf(fold); !text.empty()) line.Say(text);
    }
    if (!crew_.running().empty() && line.IsDue()) line.Show(Progress());
  }
  if (const std::optional<int64_t> failed = crew_.failed()) {
    const JobRecord& fold = crew_.job(*failed);
    throw Error(fold.status, fmt::format("fold {}: {}", *failed, fold.line));
  }
  return crew_.stopped().value_or(ExitStatus::kDone);
}

ExitStatus FoldTraining::Run(const std::string& name, const std::vector<std::string>& command) {
  const int64_t number =
      crew_.Add({.name = name, .command = [command](int64_t /*place*/) { return command; }});
  while (crew_.IsBusy()) crew_.Wait();
  if (crew_.signal() != 0) return *crew_.stopped();
  const JobRecord& job = crew_.job(number);
  if (job.signal != 0) {
    throw Error(job.status, fmt::format("signal {} ended {}", job.signal, ShellText(command)));
  }
  const bool has_begun = job.begin > 0;
  if (!has_begun) throw Error(job.status, job.line);
  return job.status;
}

void FoldTraining::TellWarnings() {
  for (const std::string& warning : crew_.TakeWarnings()) {
    if (told_.insert(warning).second) Warn(warning);
  }
}

// Returns the progress of each fold that is being trained, for example "fold 2 at epoch 3/10".
std::string FoldTraining::Progress() {
  std::vector<std::string> texts;
  for (const int64_t fold : crew_.running()) {
    RunHistory& history = histories_[fold];
    history.Refresh();
    const int64_t epochs = history.epochs();
    texts.push_back(fmt::format("fold {} at epoch {}{}", fold, history.log().epoch,
                                epochs > 0 ? fmt::format("/{}", epochs) : ""));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Returns the line that is printed for a fold that has ended; an empty string if the fold failed or was killed.
std::string FoldTraining::TextOf(int64_t fold) {
  const JobRecord& job = crew_.job(fold);
  if (job.state == JobState::kDone) {
    histories_[fold].Refresh();
    return fmt::format("fold {}: done{} ({})", fold, BestText(histories_[fold]),
                       DurationText(job.seconds));
  }
  const bool saved = job.state == JobState::kStopped && job.signal == 0;
  return saved ? fmt::format("fold {}: stopped", fold) : "";
}

}  // namespace lockstep
