// lockstep evaluate: the metrics of a run's weights.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/say.h"
#include "launch/cli/commands.h"
#include "launch/cli/rank_command.h"
#include "trainer/run/trained_run.h"

namespace lockstep {
namespace {

std::string JsonOf(const RunEvaluation& evaluation) {
  nlohmann::ordered_json line = nlohmann::ordered_json::object();
  for (const Metric& metric : evaluation.metrics) {
    line[metric.name] =
        std::isfinite(metric.value) ? nlohmann::ordered_json(metric.value) : nullptr;
  }
  line["samples"] = evaluation.samples;
  line["weights"] = evaluation.weights;
  return line.dump();
}

class EvaluateCommand final : public RankCommand {
 public:
  explicit EvaluateCommand(CLI::App& app)
      : RankCommand(app, "evaluate", "loss and accuracy of a run's weights") {
    options().Add("RUN", run_, kRunPoint).Required();
    options().Add("--input", inputs_, "files to evaluate on instead of the samples held back");
    options().Add("--json", json_, "print the metrics, with all digits, as a line of JSON");
  }

 private:
  void Check(StartedCommand&) const override { ConfigOfRun(run_); }

  ExitStatus RunAsRank(Job& job, const Invocation& invocation) override {
    const config::Config config = ConfigOfRun(run_, job);
    const World world = Connect(job, config);
    const RunEvaluation evaluation =
        EvaluateRun(run_, config, inputs_, invocation.extensions, world);
    for (const std::string& why : evaluation.bad_samples) {
      Warn(fmt::format("rank {}: {}", world.rank(), why));
    }
    if (world.rank() != 0) return ExitStatus::kDone;
    if (json_) {
      Print("{}\n", JsonOf(evaluation));
      return ExitStatus::kDone;
    }
    const std::string& weights = evaluation.weights;
    Print("{}  ({} samples{}{})\n", MetricsText(evaluation.metrics), evaluation.samples,
          weights.empty() ? "" : ", weights of ", weights);
    return ExitStatus::kDone;
  }

  std::string run_;
  std::vector<std::string> inputs_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewEvaluateCommand(CLI::App& app) {
  return std::make_unique<EvaluateCommand>(app);
}

}  // namespace lockstep
