// lockstep evaluate: prints the metrics of a run's weights.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/printable_number.h"
#include "base/say.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/rank_command.h"
#include "use/trained_run.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json NumberOf(double value) { return std::isfinite(value) ? Json(value) : nullptr; }

Json JsonOf(const std::vector<Metric>& metrics) {
  Json line = Json::object();
  for (const Metric& metric : metrics) line[metric.name] = NumberOf(metric.value);
  return line;
}

Json JsonOf(const RunEvaluation& evaluation) {
  Json line = JsonOf(evaluation.metrics);
  line["samples"] = evaluation.samples;
  line["weights"] = evaluation.weights;
  return line;
}

std::string TextOf(const RunEvaluation& evaluation, const std::string& metrics) {
  const std::string& weights = evaluation.weights;
  return fmt::format("{}  ({} samples{}{})", metrics, evaluation.samples,
                     weights.empty() ? "" : ", weights of ", weights);
}

// The mean and the standard deviation of each metric over several folds.
struct Summary {
  std::vector<Metric> means;
  std::vector<Metric> deviations;  // standard deviations, with a divisor of (folds - 1)
  int64_t samples = 0;
};

Summary SummaryOf(const std::vector<RunEvaluation>& folds) {
  Summary summary;
  for (const RunEvaluation& fold : folds) summary.samples += fold.samples;
  const auto count = static_cast<double>(folds.size());
  for (size_t i = 0; i < folds.front().metrics.size(); ++i) {
    const auto value_of = [&](const RunEvaluation& fold) { return fold.metrics.at(i).value; };
    double sum = 0;
    for (const RunEvaluation& fold : folds) sum += value_of(fold);
    const double mean = sum / count;
    double squares = 0;
    for (const RunEvaluation& fold : folds) {
      squares += (value_of(fold) - mean) * (value_of(fold) - mean);
    }
    const std::string& name = folds.front().metrics[i].name;
    summary.means.push_back({name, mean});
    summary.deviations.push_back({name, std::sqrt(squares / (count - 1))});
  }
  return summary;
}

// Prints lines that say which metrics are not defined, and what a metric leaves out.
void TellRemarks(const std::vector<RunEvaluation>& evaluations) {
  for (size_t i = 0; i < evaluations.size(); ++i) {
    const std::string which = evaluations.size() > 1 ? fmt::format("fold {}: ", i) : "";
    for (const std::string& remark : MetricRemarks(evaluations[i].metrics)) {
      Announce(which + remark);
    }
  }
}

void PrintFolds(const std::vector<RunEvaluation>& folds) {
  for (size_t i = 0; i < folds.size(); ++i) {
    Print("fold {}: {}\n", i, TextOf(folds[i], BriefMetricsText(folds[i].metrics)));
  }
  const Summary summary = SummaryOf(folds);
  Print("mean of {} folds ({} samples):\n", folds.size(), summary.samples);
  for (size_t i = 0; i < summary.means.size(); ++i) {
    // The metric is not defined in a fold, as TellRemarks() says.
    if (std::isnan(summary.means[i].value)) continue;
    Print("  {:<18} {:.4f} \u00b1 {:.4f}\n", summary.means[i].name, summary.means[i].value,
          PrintableNumber(summary.deviations[i].value));
  }
}

Json JsonOf(const std::vector<RunEvaluation>& folds) {
  const Summary summary = SummaryOf(folds);
  Json line = JsonOf(summary.means);
  line["samples"] = summary.samples;
  line["weights"] = fmt::format("{} folds", folds.size());
  line["deviations"] = JsonOf(summary.deviations);
  line["folds"] = Json::array();
  for (const RunEvaluation& fold : folds) line["folds"].push_back(JsonOf(fold));
  return line;
}

class EvaluateCommand final : public RankCommand {
 public:
  explicit EvaluateCommand(CLI::App& app)
      : RankCommand(app, "evaluate",
                    "loss and accuracy of a run's weights, or of folds and their mean") {
    options().Add("RUN", run_, kRunPoint).Required();
    options().Add("--input", inputs_, "files to evaluate on instead of the samples held back");
    options().Add("--weights", weights_, kOtherWeights);
    options().Add("--json", json_, "print the metrics, with all digits, as a line of JSON");
  }

 private:
  void Check(StartedCommand&) const override { RunsNamed(run_, weights_); }

  ExitStatus RunAsRank(Job& job, const Invocation& invocation) override {
    const std::vector<NamedRun> runs = RunsNamed(run_, weights_, job);
    const World world = Connect(job, runs.front().config);
    std::vector<RunEvaluation> evaluations;
    for (const NamedRun& run : runs) {
      evaluations.push_back(EvaluateRun(run, inputs_, invocation.extensions, world));
      for (const std::string& why : evaluations.back().bad_samples) {
        Warn(fmt::format("rank {}: {}", world.rank(), why));
      }
    }
    if (world.rank() != 0) return ExitStatus::kDone;
    std::vector<std::vector<std::string>> remarks;
    for (const RunEvaluation& evaluation : evaluations) remarks.push_back(evaluation.remarks);
    std::ranges::for_each(RemarksOfFolds(remarks), Warn);
    TellRemarks(evaluations);
    const bool has_folds = evaluations.size() > 1;
    if (json_) {
      Print("{}\n", (has_folds ? JsonOf(evaluations) : JsonOf(evaluations.front())).dump());
    } else if (has_folds) {
      PrintFolds(evaluations);
    } else {
      const RunEvaluation& only = evaluations.front();
      Print("{}\n", TextOf(only, MetricsText(only.metrics)));
    }
    return ExitStatus::kDone;
  }

  std::string run_;
  std::string weights_;
  std::vector<std::string> inputs_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewEvaluateCommand(CLI::App& app) {
  return std::make_unique<EvaluateCommand>(app);
}

}  // namespace lockstep
