// lockstep runs: lists the runs of a folder with their state, best metric, speed and verdict.
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
#include "observe/history/run_history.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNameCharacters = 60;
constexpr size_t kMostVerdictCharacters = 60;

TableRow RowOf(const RunHistory& run, double now) {
  const std::optional<BestValue> best = run.best();
  const double rate = run.samples_per_s();
  const std::string steps = run.steps() > 0 ? fmt::format("/{}", run.steps()) : "";
  return {
      Shortened(run.run_dir(), kMostNameCharacters),
      std::string(NameOf(run.state())),
      fmt::format("{}{}", run.log().step, steps),
      best ? fmt::format("{} {} at {}", best->metric, FigureText(best->value), best->step) : "-",
      rate >= 0 ? fmt::format("{:.0f}", rate) : "-",
      run.verdict().empty() ? "-" : Shortened(run.verdict(), kMostVerdictCharacters),
      DurationText(std::max(0.0, now - run.last_time()))};
}

nlohmann::ordered_json JsonOf(const RunHistory& run) {
  const std::optional<BestValue> best = run.best();
  nlohmann::ordered_json line{{"run", run.run_dir()},
                              {"state", NameOf(run.state())},
                              {"step", run.log().step},
                              {"steps", nullptr},
                              {"epoch", run.log().epoch},
                              {"best_metric", nullptr},
                              {"best", nullptr},
                              {"best_step", nullptr},
                              {"samples_per_s", nullptr},
                              {"verdict", run.verdict()},
                              {"remedy", run.remedy()},
                              {"start_time", nullptr},
                              {"last_time", run.last_time()},
                              {"why", run.log().why}};
  if (run.steps() > 0) line["steps"] = run.steps();
  if (best) {
    line["best_metric"] = best->metric;
    line["best"] = best->value;
    line["best_step"] = best->step;
  }
  if (run.samples_per_s() >= 0) line["samples_per_s"] = run.samples_per_s();
  if (run.start_time()) line["start_time"] = *run.start_time();
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
    std::vector<RunHistory> runs;
    if (IsRunFolder(folder_)) {
      runs.emplace_back(folder_);
    } else {
      for (const std::string& folder : RunFoldersIn(folder_)) {
        runs.emplace_back(fs::path(folder).lexically_normal());
      }
    }
    if (runs.empty()) {
      Announce(fmt::format("{}: there are no runs in it", folder_));
      return ExitStatus::kDone;
    }
    std::ranges::sort(runs, [](const RunHistory& a, const RunHistory& b) {
      return a.last_time() != b.last_time() ? a.last_time() > b.last_time()
                                            : a.run_dir() < b.run_dir();
    });
    if (json_) {
      for (const RunHistory& run : runs) {
        Print("{}\n",
              JsonOf(run).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
      }
      return ExitStatus::kDone;
    }
    const double now = UnixSeconds();
    std::vector<TableRow> rows{
        {"run", "state", "step", "best metric", "samples/s", "verdict", "age"}};
    for (const RunHistory& run : runs) rows.push_back(RowOf(run, now));
    Print("{}", TableText(rows));
    return ExitStatus::kDone;
  }

  std::string folder_ = "runs";
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewRunsCommand(CLI::App& app) {
  return std::make_unique<RunsCommand>(app);
}

}  // namespace lockstep
