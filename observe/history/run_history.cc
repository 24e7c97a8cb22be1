#include "observe/history/run_history.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/best_so_far.h"
#include "ckpt/run_lock.h"
#include "observe/history/log_fields.h"
#include "observe/history/training_folder.h"
#include "observe/metric_order.h"

namespace lockstep {
namespace {

constexpr char kAccuracy[] = "val_accuracy";

double ChangeTimeOf(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? static_cast<double>(status.st_mtim.tv_sec) : 0;
}

RunState StateOf(bool lock_is_held, const RunLog& log) {
  const LoggedEnd end = log.run().end;
  // A job that has logged `done` may still hold the lock while it writes its last files.
  if (end == LoggedEnd::kDone) return RunState::kDone;
  if (lock_is_held) return RunState::kTraining;
  if (end == LoggedEnd::kStopped) return RunState::kStopped;
  if (end == LoggedEnd::kFailed) return RunState::kFailed;
  return log.run().starts > 0 || log.run().step > 0 ? RunState::kKilled : RunState::kNoLog;
}

}  // namespace

std::string_view NameOf(RunState state) {
  switch (state) {
    case RunState::kTraining:
      return "training";
    case RunState::kDone:
      return "done";
    case RunState::kStopped:
      return "stopped";
    case RunState::kFailed:
      return "failed";
    case RunState::kKilled:
      return "killed";
    case RunState::kNoLog:
      return "no log";
  }
  return "";
}

RunHistory::RunHistory(std::string run_dir, RunLog::Keep keep)
    : run_dir_(std::move(run_dir)), log_(run_dir_, keep) {
  Refresh();
}

bool RunHistory::Refresh() {
  // The lock is checked before the log is read. If the log were read first, a run that ends between the reading and the
  // check would look as if it had been killed.
  const bool lock_is_held = RunLock::IsHeld(run_dir_);
  const bool is_new = log_.Read();
  const RunState before = std::exchange(state_, StateOf(lock_is_held, log_));
  const bool has_changed = is_new || state_ != before;
  if (config_ && !is_new) return has_changed;
  config::Config config = SavedConfig(run_dir_, why_no_config_);
  if (!why_no_config_.empty()) return has_changed;
  config_ = std::move(config);
  if (config_->data().task() == config::Data::MULTI_LABEL) log_.RenameLabelAccuracy();
  return true;
}

std::vector<std::string> RunHistory::Unreadable() const {
  if (KindOf(run_dir_) == FolderKind::kOther) return {};
  std::vector<std::string> lines;
  if (state_ == RunState::kNoLog) {
    lines.push_back(fmt::format("{}/log.jsonl: {}", run_dir_,
                                why_no_log().empty() ? "tells of no run" : why_no_log()));
  }
  if (!config_) lines.push_back(fmt::format("{}/config.pbtxt: {}", run_dir_, why_no_config_));
  return lines;
}

int64_t RunHistory::steps() const {
  const auto found = log().start.find("steps");
  if (found == log().start.end() || !found->is_number_integer()) return 0;
  return found->get<int64_t>();
}

int64_t RunHistory::epochs() const { return config_ ? config_->epochs() : 0; }

std::optional<BestValue> RunHistory::best() const {
  const std::vector<LoggedMetrics>& evaluations = log().evaluations;
  if (evaluations.empty()) return std::nullopt;
  std::string name = config_ ? config_->checkpoint().keep_best() : "";
  if (!name.empty()) {
    name = "val_" + name;
  } else if (!evaluations.front().values.empty()) {
    name = evaluations.front().values.front().first;
  }
  // The config of an older run may name the accuracy that its log has under its present name.
  const auto has = [&](const LoggedMetrics& evaluation) {
    return std::ranges::find(evaluation.values, name, [](const auto& value) -> const std::string& {
             return value.first;
           }) != evaluation.values.end();
  };
  if (name == kAccuracy && std::ranges::none_of(evaluations, has)) name = RunLog::kLabelAccuracy;
  BestSoFar best(GreaterFigureIsBetter(name));
  int64_t step = 0;
  for (const LoggedMetrics& evaluation : evaluations) {
    if (best.Add(evaluation.ValueOf(name))) step = evaluation.step;
  }
  if (!best.value()) return std::nullopt;
  return BestValue{name, *best.value(), step};
}

double RunHistory::samples_per_s() const {
  const auto found = log().done.find("samples_per_s");
  // If a run that was already done is started again, no step is made, so the new `done` line has no speed. The speed is
  // then taken from the last step line.
  if (found != log().done.end() && found->is_number() && *found > 0) return found->get<double>();
  return log().last_step && !std::isnan(log().last_step->samples_per_s)
             ? log().last_step->samples_per_s
             : -1;
}

std::string RunHistory::verdict() const { return TextIn(log().seconds, "verdict"); }

std::string RunHistory::remedy() const { return TextIn(log().seconds, "remedy"); }

double RunHistory::last_time() const {
  if (log().last_time) return *log().last_time;
  return log_.changed() ? *log_.changed() : ChangeTimeOf(run_dir_);
}

std::optional<double> RunHistory::trained_s() const {
  if (!log().last_logged || !log().job_began) return std::nullopt;
  return log().earlier_s + *log().last_logged - *log().job_began;
}

}  // namespace lockstep
