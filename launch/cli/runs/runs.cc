// lockstep runs: lists the runs of a folder with their state, best metric, speed and verdict. A cross-validation is one
// line, with the mean and the deviation of its folds.
//
// what can fail -> what the caller sees -> the test that shows it (tests/history_test.py)
//   the folder cannot be read -> Error (kUsage) -> test_what_is_no_run
//   there are no runs in the folder -> a line on standard error that says so, and status 0
//     -> test_a_folder_without_runs
//   a part of a run folder is missing or damaged -> the figures of that part are missing
//     (observe/history/run_history.h)
//     -> test_a_log_that_is_cut_off
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/live_line.h"
#include "base/say.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/table.h"
#include "observe/history/training_folder.h"
#include "observe/history/training_history.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNameCharacters = 60;
constexpr size_t kMostVerdictCharacters = 60;

std::string BestText(const std::optional<BestSpread>& best) {
  if (!best) return "-";
  const std::string value = SpreadText(best->value.mean, best->value.deviation);
  return best->step > 0 ? fmt::format("{} {} at {}", best->metric, value, best->step)
                        : fmt::format("{} {} of {}", best->metric, value, best->value.count);
}

TableRow RowOf(const TrainingHistory& training, double now) {
  const double rate = training.samples_per_s();
  const std::string steps = training.steps() > 0 ? fmt::format("/{}", training.steps()) : "";
  const std::string verdict = training.verdict();
  return {Shortened(training.folder(), kMostNameCharacters),
          std::string(NameOf(training.state())),
          fmt::format("{}{}", training.step(), steps),
          BestText(training.best()),
          rate >= 0 ? fmt::format("{:.0f}", rate) : "-",
          verdict.empty() ? "-" : Shortened(verdict, kMostVerdictCharacters),
          DurationText(std::max(0.0, now - training.last_time()))};
}

nlohmann::ordered_json JsonOf(const TrainingHistory& training) {
  const std::optional<BestSpread> best = training.best();
  nlohmann::ordered_json line{{"run", training.folder()},
                              {"state", NameOf(training.state())},
                              {"folds", nullptr},
                              {"step", training.step()},
                              {"steps", nullptr},
                              {"epoch", training.runs().front().log().epoch},
                              {"best_metric", nullptr},
                              {"best", nullptr},
                              {"best_deviation", nullptr},
                              {"best_step", nullptr},
                              {"samples_per_s", nullptr},
                              {"verdict", training.verdict()},
                              {"remedy", training.remedy()},
                              {"start_time", nullptr},
                              {"last_time", training.last_time()},
                              {"why", training.why()}};
  if (training.has_folds()) {
    line["folds"] = training.runs().size();
    line["epoch"] = nullptr;  // each fold has its own
  }
  if (training.steps() > 0) line["steps"] = training.steps();
  if (best) {
    line["best_metric"] = best->metric;
    line["best"] = best->value.mean;
    if (best->value.count > 1) line["best_deviation"] = best->value.deviation;
    if (best->step > 0) line["best_step"] = best->step;
  }
  if (training.samples_per_s() >= 0) line["samples_per_s"] = training.samples_per_s();
  if (training.start_time()) line["start_time"] = *training.start_time();
  return line;
}

class RunsCommand final : public LocalCommand {
 public:
  explicit RunsCommand(CLI::App& app)
      : LocalCommand(app, "runs", "the runs of a folder: state, best metric, speed, verdict") {
    options().Add("FOLDER", folder_, "folder of run folders").ShowDefault();
    options().Add("--json", json_, "print a line of JSON for each run");
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    std::vector<TrainingHistory> trainings;
    for (const std::string& folder : Folders()) {
      trainings.emplace_back(fs::path(folder).lexically_normal());
    }
    if (trainings.empty()) {
      Announce(fmt::format("{}: there are no runs in it", folder_));
      return ExitStatus::kDone;
    }
    if (KindOf(folder_) == FolderKind::kOther) {
      std::ranges::sort(trainings, [](const TrainingHistory& a, const TrainingHistory& b) {
        return a.last_time() != b.last_time() ? a.last_time() > b.last_time()
                                              : a.folder() < b.folder();
      });
    }
    if (json_) {
      for (const TrainingHistory& training : trainings) {
        Print("{}\n", JsonOf(training).dump(-1, ' ', false,
                                            nlohmann::ordered_json::error_handler_t::replace));
      }
      return ExitStatus::kDone;
    }
    const double now = UnixSeconds();
    std::vector<TableRow> rows{
        {"run", "state", "step", "best metric", "samples/s", "verdict", "age"}};
    for (const TrainingHistory& training : trainings) rows.push_back(RowOf(training, now));
    Print("{}", TableText(rows));
    return ExitStatus::kDone;
  }

  // Returns the folders of the runs and cross-validations to list. A cross-validation that the user names comes
  // first, before its folds.
  std::vector<std::string> Folders() const {
    const FolderKind kind = KindOf(folder_);
    if (kind == FolderKind::kOther) return TrainingsIn(folder_);
    std::vector<std::string> folders{folder_};
    if (kind == FolderKind::kRun) return folders;
    for (const std::string& fold : FoldFolders(folder_)) {
      if (KindOf(fold) == FolderKind::kRun) folders.push_back(fold);
    }
    return folders;
  }

  std::string folder_ = "runs";
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewRunsCommand(CLI::App& app) {
  return std::make_unique<RunsCommand>(app);
}

}  // namespace lockstep
