// lockstep train: trains a config, or continues its run, or trains the folds of a cross-validation.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/cores.h"
#include "comm/together.h"
#include "config/formats/formats.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/rank_command.h"
#include "launch/folds/fold_training.h"
#include "launch/job/elastic.h"
#include "launch/job/sign.h"
#include "launch/job/stop_signals.h"
#include "launch/job/stop_time.h"
#include "launch/job/supervised_job.h"
#include "trainer/run/trainer.h"

namespace lockstep {
namespace {

class TrainCommand final : public RankCommand {
 public:
  explicit TrainCommand(CLI::App& app)
      : RankCommand(app, "train", "train a config, or go on from its newest checkpoint") {
    config_.AddFile(options(), "config file (lockstep config --template shows one)").Required();
    options().Add("--fresh", fresh_,
                  "begin anew: a run that is in the folder is moved to another name");
    options().Add("--from", from_,
                  "RUN@STEP: another run's checkpoint to begin from where this one has none");
    options().Add("--time-budget", time_budget_,
                  "8h30m: stop in time for the command to have ended after that, with status 75");
    options().Add("--stop-at", stop_at_, "18:30 or \"2026-12-01 18:30\": the same, by the clock");
    options()
        .Add("--folds", folds_,
             "cross-validation: train so many folds, then evaluate and predict what each held back")
        .Within(2, 1000);
    options()
        .Add("--side-by-side", side_by_side_,
             "with --folds: how many are trained at a time; by default one on each GPU or core")
        .Within(1, 1000);
    config_.AddSet(options());
  }

  int Run(const Invocation& invocation) override {
    if (folds_ == 0 && side_by_side_ > 0) {
      throw UsageError("--side-by-side: is for folds: say how many there are with --folds");
    }
    if (folds_ == 0) return RankCommand::Run(invocation);
    if (Job::IsRank()) {
      throw UsageError(
          "--folds: starts the folds itself: leave out mpirun or srun, and give ranks with -n");
    }
    return static_cast<int>(RunFolds(invocation));
  }

  bool prints_result() const override { return false; }

 private:
  bool trains() const override { return true; }

  void Check(StartedCommand& started) const override {
    started.end_by_s = EndBy();
    started.run_dir = config_.Check(started).run_dir();
  }

  void Begin() override {
    EndBy();
    signals_.emplace(Job::IsRank());
  }

  ExitStatus RunAsRank(Job& job, const Invocation& invocation) override {
    const config::Config config = config_.Load(job);
    RequireSame({"--from " + from_}, job.host());
    const World world = Connect(job, config);
    TrainOptions options = TrainOptionsOf(job);
    const char* has_begun = std::getenv(kJobHasBegun);
    options.fresh = fresh_ && (has_begun == nullptr || std::string_view(has_begun) != kYes);
    options.from = from_;
    options.asked_to_stop = [this, &world, told = false]() mutable {
      if (world.rank() == 0 && !std::exchange(told, true)) Give(Sign::kTrains);
      return signals_->Asked();
    };
    options.end_by_s = OnBootClock(EndBy());
    if (const char* name = std::getenv(kJobName)) options.job = name;
    if (const char* restarts = std::getenv(kJobRestarts)) options.restarts = std::atoll(restarts);
    switch (Train(config, invocation.extensions, world, options)) {
      case StopRequest::kNone:
        break;
      case StopRequest::kStop:
        return ExitStatus::kStopped;
      case StopRequest::kInterrupt:
        return ExitStatus::kInterrupted;
    }
    return ExitStatus::kDone;
  }

  ExitStatus RunFolds(const Invocation& invocation) const {
    if (!invocation.start.First().empty()) CheckStart(invocation.start, trains());
    ConfigOptions of_folds = config_;
    for (const std::string& assignment :
         {std::string("data.validation_fraction=0"), fmt::format("data.folds.count={}", folds_)}) {
      of_folds.assignments.push_back(assignment);
    }
    const config::Config config = of_folds.Load();
    HandDownEnd(EndBy());
    FoldPlan plan{.program = WithoutOptions(invocation.words, {"--folds", "--side-by-side"}),
                  .run_dir = config.run_dir(),
                  .count = folds_,
                  .cores = UsableCores(),
                  .starts_ranks = invocation.start.RanksWanted() > 0,
                  .asked = side_by_side_};
    plan.program.insert(plan.program.begin(), invocation.program);
    if (config.device() != config::Config::CPU && !plan.starts_ranks) plan.gpus = GpusHere();
    if (plan.SideBySide() > 1) RequireNoPort(config.observe());
    FoldTraining folds(std::move(plan));
    const ExitStatus trained = folds.Train();
    if (trained != ExitStatus::kDone) return trained;
    return Summarise(folds, invocation, config);
  }

  static void RequireNoPort(const config::Observe& observe) {
    const char* const field = observe.page_port() > 0         ? "page_port"
                              : observe.prometheus_port() > 0 ? "prometheus_port"
                                                              : nullptr;
    if (field == nullptr) return;
    throw UsageError(
        "observe.{}: folds that are trained side by side cannot share a port: leave it out, or "
        "give --side-by-side 1",
        field);
  }

  // Runs the command that evaluates the folds and, if the data are not tokens, the command that predicts the samples
  // that each fold held back. Returns the exit status of the first command that fails, or kDone.
  static ExitStatus Summarise(FoldTraining& folds, const Invocation& invocation,
                              const config::Config& config) {
    const auto run = [&](std::vector<std::string> words) {
      const std::string name = words.front();
      words.insert(words.begin(), invocation.program);
      return folds.Run(name, words);
    };
    ExitStatus status = run({"evaluate", config.run_dir()});
    if (status != ExitStatus::kDone || PredictsTokens(config.data())) return status;
    const bool has_masks = config.data().task() == config::Data::SEGMENTATION;
    const std::string output =
        fmt::format("{}/held_back.{}", config.run_dir(), has_masks ? "npy" : "csv");
    std::vector<std::string> words{"predict", config.run_dir(), "--held-back", "--output", output};
    if (config.data().task() == config::Data::CLASSIFICATION) words.emplace_back("--probabilities");
    return run(std::move(words));
  }

  // Returns the time by which the run must have ended, in Unix seconds; infinity if there is no limit. Throws Error
  // (kUsage).
  double EndBy() const {
    // The time by which the job must have ended is decided once, when the job is first started, and also holds for its
    // restarts.
    if (const std::optional<double> decided = EndByOfJob()) return *decided;
    double end_by_s = std::numeric_limits<double>::infinity();
    if (!time_budget_.empty()) {
      const double started = UnixSeconds() - (SecondsSinceBoot() - CommandStart());
      end_by_s = started + ParseDuration(time_budget_);
    }
    if (!stop_at_.empty()) {
      const auto stop_at = static_cast<double>(ParseClockTime(stop_at_, std::time(nullptr)));
      end_by_s = std::min(end_by_s, stop_at);
    }
    return end_by_s;
  }

  ConfigOptions config_;
  bool fresh_ = false;
  std::string from_;
  std::string time_budget_;
  std::string stop_at_;
  int64_t folds_ = 0;  // the number of folds; 0: no cross-validation
  int64_t side_by_side_ = 0;
  std::optional<StopSignals> signals_;
};

}  // namespace

std::unique_ptr<Command> NewTrainCommand(CLI::App& app) {
  return std::make_unique<TrainCommand>(app);
}

}  // namespace lockstep
