// lockstep predict: a run's predictions for files, as CSV, or masks as an array.
#include "base/files/output_target.h"
#include "base/say.h"
#include "launch/cli/commands.h"
#include "launch/cli/rank_command.h"
#include "trainer/run/trained_run.h"

namespace lockstep {
namespace {

class PredictCommand final : public RankCommand {
 public:
  explicit PredictCommand(CLI::App& app)
      : RankCommand(app, "predict", "predictions of a run's weights, as CSV or masks") {
    options().Add("RUN", run_, kRunPoint).Required();
    options().Add("--input", inputs_, "files to predict, with or without labels").Required();
    options().Add("--output", output_, "CSV file to write; for masks a .npy file").ShowDefault();
  }

  bool prints_result() const override { return false; }

 private:
  void Check(StartedCommand&) const override { ConfigOfRun(run_); }

  ExitStatus RunAsRank(Job& job, const Invocation& invocation) override {
    const config::Config config = ConfigOfRun(run_, job);
    const World world = Connect(job, config);
    const auto [weights, samples] =
        PredictRun(run_, config, inputs_, output_, invocation.extensions, world);
    if (world.rank() == 0) {
      TellOfOutput(output_, fmt::format("{}: {} predictions{}{}", output_, samples,
                                        weights.empty() ? "" : ", weights of ", weights));
    }
    return ExitStatus::kDone;
  }

  std::string run_;
  std::vector<std::string> inputs_;
  std::string output_ = "predictions.csv";
};

}  // namespace

std::unique_ptr<Command> NewPredictCommand(CLI::App& app) {
  return std::make_unique<PredictCommand>(app);
}

}  // namespace lockstep
