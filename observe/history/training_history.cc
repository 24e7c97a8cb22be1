#include "observe/history/training_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "observe/history/training_folder.h"

namespace lockstep {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool IsFailed(const JobRecord& job) { return job.state == JobState::kFailed; }

// Returns the job with the name `name`; null if there is none.
const JobRecord* JobNamed(const std::string& name, const std::vector<JobRecord>& jobs) {
  const auto job = std::ranges::find(jobs, name, &JobRecord::name);
  return job == jobs.end() ? nullptr : &*job;
}

// Returns the state in words of a fold that has the state `state` and the job `job`, which may be null.
std::string StateOf(RunState state, const JobRecord* job) {
  if (state != RunState::kNoLog || job == nullptr) return std::string(NameOf(state));
  if (IsFailed(*job)) return "failed";
  return job->state == JobState::kRunning ? "starting" : "waiting";
}

}  // namespace

std::string StateInWords(const RunHistory& run) {
  if (run.state() != RunState::kNoLog) return std::string(NameOf(run.state()));
  const std::filesystem::path folder =
      std::filesystem::path(run.run_dir() + "/").lexically_normal();
  const std::filesystem::path fold = folder.parent_path();
  const std::filesystem::path training = fold.has_parent_path() ? fold.parent_path() : ".";
  const std::vector<JobRecord> jobs = CrewFile::Read(training);
  return StateOf(run.state(), JobNamed(fold.filename(), jobs));
}

Spread SpreadOf(const std::vector<double>& values) {
  std::vector<double> known;
  std::ranges::copy_if(values, std::back_inserter(known),
                       [](double value) { return !std::isnan(value); });
  const auto count = static_cast<double>(known.size());
  Spread spread{.mean = kNan, .deviation = kNan, .count = std::ssize(known)};
  if (known.empty()) return spread;
  double sum = 0;
  for (const double value : known) sum += value;
  spread.mean = sum / count;
  if (known.size() < 2) return spread;
  double squares = 0;
  for (const double value : known) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / (count - 1));
  return spread;
}

TrainingHistory::TrainingHistory(std::string folder, RunLog::Keep keep)
    : folder_(std::move(folder)),
      keep_(keep),
      has_folds_(KindOf(folder_) == FolderKind::kCrossValidation) {
  if (!has_folds_) runs_.emplace_back(folder_, keep_);
  Refresh();
}

void TrainingHistory::Refresh() {
  if (has_folds_) {
    // The lock is checked before crew.json and the logs are read, for the reason that RunHistory::Refresh() gives.
    has_crew_ = CrewFile::HasCrew(folder_);
    jobs_ = CrewFile::Read(folder_);
    const std::vector<std::string> folders = FoldFolders(folder_);
    while (runs_.size() > folders.size()) runs_.pop_back();
    for (size_t fold = runs_.size(); fold < folders.size(); ++fold) {
      runs_.emplace_back(folders[fold], keep_);
    }
  }
  for (RunHistory& run : runs_) run.Refresh();
  state_ = has_folds_ ? StateOfFolds() : runs_.front().state();
}

RunState TrainingHistory::StateOfFolds() const {
  const auto any = [&](RunState state) {
    return std::ranges::any_of(runs_, [&](const RunHistory& run) { return run.state() == state; });
  };
  if (has_crew_ || any(RunState::kTraining)) return RunState::kTraining;
  // A fold that was killed has failed for its crew, too.
  if (any(RunState::kFailed)) return RunState::kFailed;
  if (any(RunState::kKilled)) return RunState::kKilled;
  if (std::ranges::any_of(jobs_, IsFailed)) return RunState::kFailed;
  const bool are_trained = std::ranges::all_of(
      runs_, [](const RunHistory& run) { return run.state() == RunState::kDone; });
  const bool are_settled =
      std::ranges::all_of(jobs_, [](const JobRecord& job) { return job.state == JobState::kDone; });
  if (are_trained && are_settled) return RunState::kDone;
  return any(RunState::kDone) || any(RunState::kStopped) ? RunState::kStopped : RunState::kNoLog;
}

const JobRecord* TrainingHistory::JobOf(size_t fold) const {
  return JobNamed(fmt::format("fold-{}", fold), jobs_);
}

std::string TrainingHistory::FoldState(size_t fold) const {
  const RunState state = runs_.at(fold).state();
  const JobRecord* const job = JobOf(fold);
  const bool is_waiting = has_crew_ && job != nullptr && job->state == JobState::kWaiting;
  return is_waiting && state != RunState::kDone ? "waiting" : StateOf(state, job);
}

template <typename TextOf>
std::string TrainingHistory::FirstText(const TextOf& text_of) const {
  for (size_t i = 0; i < runs_.size(); ++i) {
    const std::string text = text_of(i);
    if (!text.empty()) return has_folds_ ? fmt::format("fold {}: {}", i, text) : text;
  }
  return "";
}

std::string TrainingHistory::why() const {
  if (has_folds_ && (state_ == RunState::kTraining || state_ == RunState::kDone)) return "";
  // A fold that failed says more than the folds that were stopped for it.
  const std::string failure = FirstText([&](size_t i) {
    const JobRecord* const job = JobOf(i);
    if (runs_[i].state() == RunState::kFailed) return runs_[i].log().why;
    return job != nullptr && IsFailed(*job) ? job->line : std::string();
  });
  if (!failure.empty()) return failure;
  for (const JobRecord& job : jobs_) {
    if (IsFailed(job)) return fmt::format("{}: {}", job.name, job.line);
  }
  return FirstText([&](size_t i) { return runs_[i].log().why; });
}

std::string TrainingHistory::verdict() const {
  return FirstText([&](size_t i) { return runs_[i].verdict(); });
}

std::string TrainingHistory::remedy() const {
  return FirstText([&](size_t i) { return runs_[i].remedy(); });
}

int64_t TrainingHistory::step() const {
  int64_t sum = 0;
  for (const RunHistory& run : runs_) sum += run.log().step;
  return sum;
}

int64_t TrainingHistory::steps() const {
  int64_t sum = 0;
  int64_t of_one = 0;
  int64_t unknown = 0;
  for (const RunHistory& run : runs_) {
    sum += run.steps();
    of_one = std::max(of_one, run.steps());
    unknown += run.steps() > 0 ? 0 : 1;
  }
  return sum + unknown * of_one;
}

std::optional<BestSpread> TrainingHistory::best() const {
  std::optional<BestSpread> best;
  std::vector<double> values;
  for (const RunHistory& run : runs_) {
    const std::optional<BestValue> one = run.best();
    if (!one) continue;
    if (!best)
      best = BestSpread{.metric = one->metric, .value{}, .step = has_folds_ ? 0 : one->step};
    if (one->metric == best->metric) values.push_back(one->value);
  }
  if (best) best->value = SpreadOf(values);
  return best;
}

double TrainingHistory::samples_per_s() const {
  std::vector<double> speeds;
  for (const RunHistory& run : runs_) {
    if (run.samples_per_s() >= 0) speeds.push_back(run.samples_per_s());
  }
  return speeds.empty() ? -1 : SpreadOf(speeds).mean;
}

std::optional<double> TrainingHistory::start_time() const {
  std::optional<double> first;
  for (const RunHistory& run : runs_) {
    const std::optional<double> time = run.start_time();
    if (time && (!first || *time < *first)) first = time;
  }
  return first;
}

double TrainingHistory::last_time() const {
  double last = 0;
  for (const RunHistory& run : runs_) last = std::max(last, run.last_time());
  for (const JobRecord& job : jobs_) last = std::max({last, job.begin, job.end});
  return last;
}

std::optional<double> TrainingHistory::trained_s() const {
  std::optional<double> sum;
  for (const RunHistory& run : runs_) {
    if (const std::optional<double> one = run.trained_s()) sum = sum.value_or(0) + *one;
  }
  return sum;
}

}  // namespace lockstep
