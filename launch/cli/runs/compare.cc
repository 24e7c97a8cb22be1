// lockstep compare: shows runs side by side, with the config fields in which they differ, their speed, and their
// metrics by step. If two profiles are given instead of runs, shows the kernels of the profiles.
//
// what can fail -> what the caller sees -> the test that shows it (tests/history_test.py)
//   one of the folders is no run folder -> Error (kUsage) -> test_what_is_no_run
//   a run and a profile, or three profiles -> Error (kUsage) -> tests/profile_test.py, test_what_cannot_be_compared
//   a log or a config cannot be read -> a warning, and the comparison of the rest -> test_files_that_are_none
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <list>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/live_line.h"
#include "base/say.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/table.h"
#include "launch/cli/runs/profile_comparison.h"
#include "observe/history/run_comparison.h"
#include "observe/metric_order.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostSteps = 5;  // how many steps the table shows at most
constexpr int64_t kWindows = 5;   // the table has the mean loss of this many equal parts of a run
constexpr size_t kMostCharacters = 60;

// Fields of the log's start line about the program, the devices, the precision, the size of the model, and the number
// of samples.
constexpr std::array kFacts{"version", "world_size",        "device", "precision", "parameters",
                            "samples", "validation_samples"};

using Runs = std::vector<const RunHistory*>;

template <typename TextOf>
void AddRow(const std::string& name, const Runs& runs, const TextOf& text_of,
            std::vector<TableRow>& rows) {
  TableRow row{"  " + name};
  for (const RunHistory* run : runs) row.push_back(Shortened(text_of(*run), kMostCharacters));
  rows.push_back(std::move(row));
}

Json FactOf(const RunHistory& run, const char* name) {
  const auto found = run.log().start.find(name);
  return found != run.log().start.end() && found->is_primitive() ? *found : Json();
}

std::string TextOf(const Json& fact) {
  if (fact.is_null()) return "-";
  return fact.is_string() ? fact.get<std::string>() : fact.dump();
}

void AddMetric(const MetricComparison& metric, std::vector<TableRow>& rows) {
  rows.push_back({metric.name});
  for (size_t i = 0; i < metric.steps.size(); ++i) {
    TableRow row{fmt::format("  step {}", metric.steps[i])};
    for (const double value : metric.at_step[i]) row.push_back(FigureText(value));
    rows.push_back(std::move(row));
  }
  TableRow last{"  last"};
  TableRow best{"  best"};
  bool has_best = false;
  for (size_t i = 0; i < metric.last.size(); ++i) {
    const std::string value = std::isnan(metric.last[i]) ? "nan" : FigureText(metric.last[i]);
    last.push_back(metric.last_step[i] > 0 ? fmt::format("{} at {}", value, metric.last_step[i])
                                           : "-");
    has_best |= !std::isnan(metric.best[i]);
    best.push_back(!std::isnan(metric.best[i])
                       ? fmt::format("{} at {}", FigureText(metric.best[i]), metric.best_step[i])
                       : "-");
  }
  rows.push_back(std::move(last));
  if (has_best) rows.push_back(std::move(best));
}

void PrintTable(const Runs& runs) {
  TableRow header{""};
  for (const RunHistory* run : runs) header.push_back(Shortened(run->run_dir(), kMostCharacters));
  std::vector<TableRow> rows{std::move(header), {"run"}};
  AddRow(
      "state", runs, [](const RunHistory& run) { return std::string(NameOf(run.state())); }, rows);
  AddRow(
      "step", runs,
      [](const RunHistory& run) {
        return run.steps() > 0 ? fmt::format("{} of {}", run.log().step, run.steps())
                               : fmt::format("{}", run.log().step);
      },
      rows);
  AddRow(
      "samples/s", runs,
      [](const RunHistory& run) {
        return run.samples_per_s() >= 0 ? fmt::format("{:.0f}", run.samples_per_s()) : "-";
      },
      rows);
  AddRow(
      "time", runs,
      [](const RunHistory& run) { return run.trained_s() ? DurationText(*run.trained_s()) : "-"; },
      rows);
  AddRow(
      "verdict", runs,
      [](const RunHistory& run) { return run.verdict().empty() ? "-" : run.verdict(); }, rows);
  for (const char* fact : kFacts) {
    AddRow(fact, runs, [&](const RunHistory& run) { return TextOf(FactOf(run, fact)); }, rows);
  }
  const std::vector<FieldDifference> differences = ConfigDifferences(runs);
  if (!differences.empty()) rows.push_back({"config"});
  for (const FieldDifference& difference : differences) {
    TableRow row{"  " + difference.field};
    for (const std::string& value : difference.values) {
      row.push_back(Shortened(value, kMostCharacters));
    }
    rows.push_back(std::move(row));
  }
  AddMetric(CompareLosses(runs, kWindows), rows);
  for (const MetricComparison& metric : CompareMetrics(runs, kMostSteps)) {
    if (IsBriefFigure(metric.name)) AddMetric(metric, rows);
  }
  Print("{}", TableText(rows));
}

void PrintJson(const Runs& runs) {
  Json result{{"runs", Json::array()}, {"config", Json::object()}, {"metrics", Json::object()}};
  for (const RunHistory* run : runs) {
    Json one{{"run", run->run_dir()},   {"state", NameOf(run->state())},
             {"step", run->log().step}, {"samples_per_s", nullptr},
             {"seconds", nullptr},      {"verdict", run->verdict()}};
    if (run->samples_per_s() >= 0) one["samples_per_s"] = run->samples_per_s();
    if (run->trained_s()) one["seconds"] = *run->trained_s();
    for (const char* fact : kFacts) one[fact] = FactOf(*run, fact);
    result["runs"].push_back(std::move(one));
  }
  for (const FieldDifference& difference : ConfigDifferences(runs)) {
    result["config"][difference.field] = difference.values;
  }
  std::vector<MetricComparison> metrics = CompareMetrics(runs, std::numeric_limits<size_t>::max());
  metrics.insert(metrics.begin(), CompareLosses(runs, kWindows));
  for (const MetricComparison& metric : metrics) {
    result["metrics"][metric.name] = {{"steps", metric.steps}, {"at_step", metric.at_step},
                                      {"last", metric.last},   {"last_step", metric.last_step},
                                      {"best", metric.best},   {"best_step", metric.best_step}};
  }
  Print("{}\n", result.dump(-1, ' ', false, Json::error_handler_t::replace));
}

class CompareCommand final : public LocalCommand {
 public:
  explicit CompareCommand(CLI::App& app)
      : LocalCommand(app, "compare", "what runs differ in, and how they did, side by side") {
    options()
        .Add("RUN", folders_,
             "two run folders or more; or two profiles, each RUN@STEP or a trace's file")
        .Required()
        .Take(2, 100);
    options().Add("--json", json_, "print one line of JSON");
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    const auto profiles = std::ranges::count_if(folders_, NamesProfile);
    if (profiles == 0) return CompareRuns();
    if (profiles != 2 || folders_.size() != 2) {
      throw UsageError(
          "compare two profiles (RUN@STEP or a trace's file), or two run folders or more");
    }
    PrintProfileComparison(ReadRunProfile(folders_[0]), ReadRunProfile(folders_[1]), json_);
    return ExitStatus::kDone;
  }

  ExitStatus CompareRuns() {
    std::list<RunHistory> histories;
    Runs runs;
    for (const std::string& folder : folders_) {
      RequireRunFolder(folder);
      const RunHistory& run = histories.emplace_back(folder, RunLog::Keep::kAllSteps);
      if (run.state() == RunState::kNoLog) {
        Warn(fmt::format("{}/log.jsonl: {}", folder,
                         run.why_no_log().empty() ? "tells of no run" : run.why_no_log()));
      }
      if (!run.config()) {
        Warn(fmt::format("{}/config.pbtxt: {}: configs are not compared", folder,
                         run.why_no_config()));
      }
      runs.push_back(&run);
    }
    if (json_) {
      PrintJson(runs);
    } else {
      PrintTable(runs);
    }
    return ExitStatus::kDone;
  }

  std::vector<std::string> folders_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewCompareCommand(CLI::App& app) {
  return std::make_unique<CompareCommand>(app);
}

}  // namespace lockstep
