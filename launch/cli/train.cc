// lockstep train: a config, or going on with it.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "comm/together.h"
#include "launch/cli/commands.h"
#include "launch/cli/rank_command.h"
#include "launch/job/sign.h"
#include "launch/job/stop_signals.h"
#include "launch/job/stop_time.h"
#include "launch/job/supervised_job.h"

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
    config_.AddSet(options());
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

  // When the run is to have ended, in Unix time. Throws Error (kUsage).
  double EndBy() const {
    // What was decided when the job was started first holds for its restarts, too.
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
  std::optional<StopSignals> signals_;
};

}  // namespace

std::unique_ptr<Command> NewTrainCommand(CLI::App& app) {
  return std::make_unique<TrainCommand>(app);
}

}  // namespace lockstep
