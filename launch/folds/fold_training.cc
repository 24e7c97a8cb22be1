#include "launch/folds/fold_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/live_line.h"
#include "base/shell_text.h"
#include "launch/job/early_signals.h"
#include "launch/job/taken_signals.h"
#include "launch/machine/child_process.h"
#include "launch/machine/said_file.h"
#include "observe/history/run_history.h"
#include "use/named_runs.h"

namespace lockstep {
namespace {

constexpr double kLookInterval_s = 0.2;
constexpr std::initializer_list<int> kStopSignals = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR2};
constexpr std::chrono::seconds kPlainPeriod(10);

bool IsStop(int status) {
  return status == static_cast<int>(ExitStatus::kStopped) ||
         status == static_cast<int>(ExitStatus::kInterrupted);
}

std::string BestText(const RunHistory& history) {
  const std::optional<BestValue> best = history.best();
  return best ? fmt::format("{} {:.4f} at step {}", best->metric, best->value, best->step) : "";
}

// The training of one fold.
class Fold {
 public:
  Fold(const FoldPlan& plan, int64_t number, int64_t place)
      : number_(number),
        place_(place),
        said_(fmt::format("{}/fold-{}.txt", plan.run_dir, number)),
        history_(FoldRunDir(plan.run_dir, number)),
        began_s_(SecondsSinceBoot()),
        program_(plan.CommandOf(number, place, FoldRunDir(plan.run_dir, number)),
                 ChildProcess::Group::kOwn, said_.descriptor(), MaskAtStart(), said_.descriptor()) {
  }

  int64_t number() const { return number_; }
  int64_t place() const { return place_; }
  void Send(int signal) const { program_.Send(signal); }
  std::optional<ChildProcess::End> Poll() { return program_.Poll(); }
  std::string error() const { return said_.LastError(); }

  // "fold 2 at epoch 3/10"
  std::string Progress() {
    history_.Refresh();
    const int64_t epochs = history_.epochs();
    return fmt::format("fold {} at epoch {}{}", number_, history_.log().epoch,
                       epochs > 0 ? fmt::format("/{}", epochs) : "");
  }

  std::string Done() {
    history_.Refresh();
    const std::string best = BestText(history_);
    return fmt::format("fold {}: done{}{} ({})", number_, best.empty() ? "" : ", best ", best,
                       DurationText(SecondsSinceBoot() - began_s_));
  }

 private:
  int64_t number_;
  int64_t place_;
  SaidFile said_;
  RunHistory history_;
  double began_s_;
  ChildProcess program_;
};

// The folds of a cross-validation, and the programs that train them.
class Folds {
 public:
  explicit Folds(const FoldPlan& plan)
      : plan_(plan), line_(isatty(STDOUT_FILENO) != 0, kPlainPeriod) {}

  ExitStatus Train() {
    while (MayStart() || !running_.empty()) {
      while (MayStart() && std::ssize(running_) < plan_.SideBySide()) Start();
      OnSignal(taken_.Wait(kLookInterval_s));
      std::erase_if(running_, [&](const std::unique_ptr<Fold>& fold) { return HasEnded(*fold); });
      if (!running_.empty() && line_.IsDue()) line_.Show(Progress());
    }
    if (!failure_.empty()) throw Error(static_cast<ExitStatus>(failed_status_), failure_);
    return static_cast<ExitStatus>(stopped_status_);
  }

 private:
  bool MayStart() const { return next_ < plan_.count && failure_.empty() && stopped_status_ == 0; }

  void Start() {
    int64_t place = 0;
    const auto is_taken = [&](const std::unique_ptr<Fold>& fold) { return fold->place() == place; };
    while (std::ranges::any_of(running_, is_taken)) ++place;
    try {
      running_.push_back(std::make_unique<Fold>(plan_, next_, place));
      ++next_;
    } catch (const Error& error) {
      Fail(static_cast<int>(error.status()), error.what());
    }
  }

  // Ends the others, which save their state.
  void Fail(int status, const std::string& why) {
    failed_status_ = status;
    failure_ = why;
    SendAll(SIGTERM);
  }

  void OnSignal(int signal) {
    if (signal == 0 || signal == SIGCHLD) return;
    if (stopped_status_ == 0) {
      line_.Say("stopping: the folds save their state");
      stopped_status_ =
          static_cast<int>(signal == SIGINT ? ExitStatus::kInterrupted : ExitStatus::kStopped);
      // If one has failed, the others have been asked already, and a second SIGTERM ends a run at once.
      if (failure_.empty()) SendAll(SIGTERM);
    } else {
      SendAll(SIGKILL);
    }
  }

  void SendAll(int signal) const {
    for (const std::unique_ptr<Fold>& fold : running_) fold->Send(signal);
  }

  bool HasEnded(Fold& fold) {
    const std::optional<ChildProcess::End> end = fold.Poll();
    if (!end) return false;
    if (end->signal == 0 && end->code == 0) {
      line_.Say(fold.Done());
    } else if (end->signal == 0 && IsStop(end->code)) {
      line_.Say(fmt::format("fold {}: stopped", fold.number()));
      if (stopped_status_ == 0) stopped_status_ = end->code;
    } else if (stopped_status_ == 0 && failure_.empty()) {
      if (end->signal != 0) {
        Fail(static_cast<int>(ExitStatus::kPeer),
             fmt::format("fold {}: signal {} ended it", fold.number(), end->signal));
      } else {
        Fail(end->code, fmt::format("fold {}: {}", fold.number(), fold.error()));
      }
    }
    return true;
  }

  std::string Progress() {
    std::vector<std::string> texts;
    for (const std::unique_ptr<Fold>& fold : running_) texts.push_back(fold->Progress());
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  const FoldPlan& plan_;
  TakenSignals taken_{kStopSignals};
  LiveLine line_;
  std::vector<std::unique_ptr<Fold>> running_;
  int64_t next_ = 0;  // the fold that is started next
  int stopped_status_ = 0;
  int failed_status_ = 0;
  std::string failure_;
};

}  // namespace

ExitStatus TrainFolds(const FoldPlan& plan) {
  std::error_code error;
  std::filesystem::create_directories(plan.run_dir, error);
  if (error) throw UsageError("{}: cannot be made: {}", plan.run_dir, error.message());
  if (IsRunFolder(plan.run_dir)) {
    throw UsageError("{}: holds a run, and folds need a folder of their own: --set run_dir=FOLDER",
                     plan.run_dir);
  }
  return Folds(plan).Train();
}

ExitStatus RunOnFolds(const std::vector<std::string>& command) {
  const TakenSignals taken(kStopSignals);
  ChildProcess program(command, ChildProcess::Group::kOwn, STDOUT_FILENO, MaskAtStart());
  std::optional<ChildProcess::End> end;
  int asked = 0;  // the first signal that asked this process to stop
  while (!(end = program.Poll())) {
    const int signal = taken.Wait(kLookInterval_s);
    if (signal == 0 || signal == SIGCHLD) continue;
    program.Send(asked == 0 ? SIGTERM : SIGKILL);
    if (asked == 0) asked = signal;
  }
  if (asked != 0) return asked == SIGINT ? ExitStatus::kInterrupted : ExitStatus::kStopped;
  if (end->signal != 0) {
    throw Error(ExitStatus::kPeer,
                fmt::format("signal {} ended {}", end->signal, ShellText(command)));
  }
  return static_cast<ExitStatus>(end->code);
}

}  // namespace lockstep
