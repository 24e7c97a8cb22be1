// lockstep evaluate: the metrics of a run's weights.
#include "base/say.h"
#include "launch/cli/commands.h"
#include "launch/cli/rank_command.h"
#include "trainer/run/trained_run.h"

namespace lockstep {
namespace {

class EvaluateCommand final : public RankCommand {
 public:
  explicit EvaluateCommand(CLI::App& app)
      : RankCommand(app, "evaluate", "loss and accuracy of a run's weights") {
    options().Add("RUN", run_, kRunPoint).Required();
    options().Add("--input", inputs_, "files to evaluate on instead of the samples held back");
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
    const std::string& weights = evaluation.weights;
    Print("{}  ({} samples{}{})\n", MetricsText(evaluation.metrics), evaluation.samples,
          weights.empty() ? "" : ", weights of ", weights);
    return ExitStatus::kDone;
  }

  std::string run_;
  std::vector<std::string> inputs_;
};

}  // namespace

std::unique_ptr<Command> NewEvaluateCommand(CLI::App& app) {
  return std::make_unique<EvaluateCommand>(app);
}

}  // namespace lockstep
