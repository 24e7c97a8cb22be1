// lockstep compare: shows runs side by side, with the config fields in which they differ, their speed, and their
// metrics by step. A cross-validation has the means of its folds. If two profiles are given instead of runs, shows the
// kernels of the profiles.
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
#include "observe/history/training_folder.h"
#include "observe/history/training_history.h"
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

using Trainings = std::list<TrainingHistory>;

template <typename TextOf>
void AddRow(const std::string& name, const Trainings& trainings, const TextOf& text_of,
            std::vector<TableRow>& rows) {
  TableRow row{"  " + name};
  for (const TrainingHistory& one : trainings) {
    row.push_back(Shortened(text_of(one), kMostCharacters));
  }
  rows.push_back(std::move(row));
}

// Returns the fact of the run, or of the first fold that has begun.
Json FactOf(const TrainingHistory& training, const char* name) {
  for (const RunHistory& run : training.runs()) {
    const auto found = run.log().start.find(name);
    if (found != run.log().start.end() && found->is_primitive()) return *found;
  }
  return {};
}

std::vector<ComparedRuns> ComparedOf(const Trainings& trainings) {
  std::vector<ComparedRuns> compared;
  for (const TrainingHistory& training : trainings) {
    ComparedRuns& runs = compared.emplace_back();
    for (const RunHistory& run : training.runs()) runs.push_back(&run);
  }
  return compared;
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
  const auto at = [](int64_t step) { return step > 0 ? fmt::format(" at {}", step) : ""; };
  for (size_t i = 0; i < metric.last.size(); ++i) {
    const std::string value =
        std::isnan(metric.last[i]) ? "nan" : SpreadText(metric.last[i], metric.last_deviation[i]);
    last.push_back(metric.last_step[i] > 0 ? value + at(metric.last_step[i]) : "-");
    has_best |= !std::isnan(metric.best[i]);
    best.push_back(!std::isnan(metric.best[i])
                       ? SpreadText(metric.best[i], metric.best_deviation[i]) +
                             at(metric.best_step[i])
                       : "-");
  }
  rows.push_back(std::move(last));
  if (has_best) rows.push_back(std::move(best));
}

void PrintTable(const Trainings& trainings) {
  TableRow header{""};
  for (const TrainingHistory& one : trainings) {
    header.push_back(Shortened(one.folder(), kMostCharacters));
  }
  std::vector<TableRow> rows{std::move(header), {"run"}};
  AddRow(
      "state", trainings,
      [](const TrainingHistory& one) { return std::string(NameOf(one.state())); }, rows);
  const bool has_folds = std::ranges::any_of(trainings, &TrainingHistory::has_folds);
  if (has_folds) {
    AddRow(
        "folds", trainings,
        [](const TrainingHistory& one) {
          return one.has_folds() ? fmt::format("{}", one.runs().size()) : "-";
        },
        rows);
  }
  AddRow(
      "step", trainings,
      [](const TrainingHistory& one) {
        return one.steps() > 0 ? fmt::format("{} of {}", one.step(), one.steps())
                               : fmt::format("{}", one.step());
      },
      rows);
  AddRow(
      "samples/s", trainings,
      [](const TrainingHistory& one) {
        return one.samples_per_s() >= 0 ? fmt::format("{:.0f}", one.samples_per_s()) : "-";
      },
      rows);
  AddRow(
      "time", trainings,
      [](const TrainingHistory& one) {
        return one.trained_s() ? DurationText(*one.trained_s()) : "-";
      },
      rows);
  AddRow(
      "verdict", trainings,
      [](const TrainingHistory& one) { return one.verdict().empty() ? "-" : one.verdict(); }, rows);
  for (const char* fact : kFacts) {
    AddRow(
        fact, trainings, [&](const TrainingHistory& one) { return TextOf(FactOf(one, fact)); },
        rows);
  }
  const std::vector<ComparedRuns> compared = ComparedOf(trainings);
  const std::vector<FieldDifference> differences = ConfigDifferences(compared);
  if (!differences.empty()) rows.push_back({"config"});
  for (const FieldDifference& difference : differences) {
    TableRow row{"  " + difference.field};
    for (const std::string& value : difference.values) {
      row.push_back(Shortened(value, kMostCharacters));
    }
    rows.push_back(std::move(row));
  }
  AddMetric(CompareLosses(compared, kWindows), rows);
  for (const MetricComparison& metric : CompareMetrics(compared, kMostSteps)) {
    if (IsBriefFigure(metric.name)) AddMetric(metric, rows);
  }
  Print("{}", TableText(rows));
}

void PrintJson(const Trainings& trainings) {
  Json result{{"runs", Json::array()}, {"config", Json::object()}, {"metrics", Json::object()}};
  for (const TrainingHistory& training : trainings) {
    Json one{
        {"run", training.folder()},     {"state", NameOf(training.state())}, {"folds", nullptr},
        {"step", training.step()},      {"samples_per_s", nullptr},          {"seconds", nullptr},
        {"verdict", training.verdict()}};
    if (training.has_folds()) one["folds"] = training.runs().size();
    if (training.samples_per_s() >= 0) one["samples_per_s"] = training.samples_per_s();
    if (training.trained_s()) one["seconds"] = *training.trained_s();
    for (const char* fact : kFacts) one[fact] = FactOf(training, fact);
    result["runs"].push_back(std::move(one));
  }
  const std::vector<ComparedRuns> compared = ComparedOf(trainings);
  for (const FieldDifference& difference : ConfigDifferences(compared)) {
    result["config"][difference.field] = difference.values;
  }
  std::vector<MetricComparison> metrics =
      CompareMetrics(compared, std::numeric_limits<size_t>::max());
  metrics.insert(metrics.begin(), CompareLosses(compared, kWindows));
  for (const MetricComparison& metric : metrics) {
    result["metrics"][metric.name] = {{"steps", metric.steps},
                                      {"at_step", metric.at_step},
                                      {"last", metric.last},
                                      {"last_step", metric.last_step},
                                      {"best", metric.best},
                                      {"best_step", metric.best_step},
                                      {"last_deviation", metric.last_deviation},
                                      {"best_deviation", metric.best_deviation}};
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
    Trainings trainings;
    for (const std::string& folder : folders_) {
      RequireTraining(folder);
      const TrainingHistory& training = trainings.emplace_back(folder, RunLog::Keep::kAllSteps);
      for (const RunHistory& run : training.runs()) std::ranges::for_each(run.Unreadable(), Warn);
    }
    if (json_) {
      PrintJson(trainings);
    } else {
      PrintTable(trainings);
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
