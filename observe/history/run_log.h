// RunLog: reads a run's log.jsonl (trainer/run/run_folder.h lists its lines), even while a job writes it.
//
// Promise: a log of any size and content is read to its end. A line that is not complete yet is read when it is
// complete. A line that is not a JSON object, or whose fields have wrong types, is skipped and counted. Memory is
// needed only for the lines that are kept. A million step lines are read in a fraction of a second: with
// Keep::kLastStep only the last step line is parsed, and with Keep::kAllSteps step lines need no general JSON parser
// (observe/history/step_line.h).
//
// Invariants:
//   1. If a run makes steps again after a restart from an earlier checkpoint, the newest lines count: a `step` line
//      replaces all earlier step, epoch and evaluation lines of this step and of later steps. A line of an epoch, an
//      evaluation or a checkpoint replaces earlier lines of its own kind from its step on.
//   2. The names of validation metrics begin with "val_". Older versions wrote "loss", which is read as "val_loss".
//
// what can fail -> what the caller sees -> the test that shows it (observe/history/run_log_test.cc)
//   there is no log, or there is a pipe, link or folder in its place -> why_not() says so, and run() is empty
//     -> Log.SaysWhyThereIsNone
//   the last line is cut off -> it is not read until it is complete -> Log.ReadsWhatIsAppended
//   a line is not JSON, has a field of a wrong type, or is longer than any line of a log -> bad_lines counts it
//     -> Log.LeavesOutWhatIsNoLine
//   the file was replaced, or has become shorter -> it is read again from its beginning -> Log.ReadsANewFileAnew
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/history/step_line.h"

namespace lockstep {

// The metrics of an epoch or of an evaluation.
struct LoggedMetrics {
  int64_t step = 0;
  int64_t epoch = 0;
  double time = 0;  // the Unix time; NaN if the line has no time
  std::vector<std::pair<std::string, double>> values{};

  // Returns the value of the metric `name`, or NaN if the line does not have this metric.
  double ValueOf(std::string_view name) const;
};

// A `seconds` line: what a job had spent its time on when the line was written.
struct LoggedSeconds {
  double time = 0;
  int64_t step = 0;
  double wall_s = 0;
  double ideal_s = 0;
  // lost_s[i] is the number of seconds lost to the cause LoggedRun::causes[i]. `lost_s` may be shorter than `causes`.
  std::vector<float> lost_s;
};

// A verdict that differs from the previous verdict in more than its numbers. If several lines in succession have this
// verdict, perhaps with other numbers, `verdict` and `remedy` are those of the last of these lines.
struct LoggedVerdict {
  double time = 0;  // the time of the first line with this verdict
  int64_t step = 0;
  std::string verdict;  // empty: no loss was great enough for a verdict
  std::string remedy;
};

// A reading of a GPU. A number that the log does not have is NaN.
struct LoggedGpu {
  int index = 0;
  float use = 0;
  float memory_use = 0;
  double memory_used_bytes = 0;
  float power_w = 0;
  float temperature_c = 0;
  float sm_clock_mhz = 0;
};

// A reading of the machine.
struct LoggedReading {
  double time = 0;
  int64_t step = 0;
  float cpu_use = 0;
  double memory_used_bytes = 0;
  double process_memory_bytes = 0;
  std::vector<LoggedGpu> gpus;
};

// A job that trained the run.
struct LoggedJob {
  double began = 0;      // the Unix time of the job's first line that has a time
  double earlier_s = 0;  // for how many seconds the earlier jobs trained
};

// How the run's last job ended, as its `done`, `stopped` or `failed` line says; kNone: the job has no such line.
enum class LoggedEnd { kNone, kDone, kStopped, kFailed };

// The state of the run according to the lines that were read.
struct LoggedRun {
  nlohmann::ordered_json start;  // the last `start` line; null if the log has no `start` line
  int64_t starts = 0;            // the number of `start` lines
  // The Unix times of the first and the last line that have a time, as the lines have them.
  std::optional<double> first_time;
  std::optional<double> last_time;
  // The times below, and those of all lines, are on one clock: the log's, without its jumps. If the machine's clock was
  // set while a job trained (a line has an earlier time than the line before it, or one that is more than a day later),
  // the later lines follow the line before the jump at once.
  std::optional<double> last_logged;  // the last line
  // The time of the last `start` line, or of the first line if there is no `start` line.
  std::optional<double> job_began;
  double earlier_s = 0;  // for how many seconds the jobs before the last job trained
  int64_t step = 0;      // the last step that was made
  int64_t epoch = 0;
  std::optional<LoggedStep> last_step;
  // The following four lists are in the order of their steps.
  std::vector<LoggedStep> steps;      // empty without Keep::kAllSteps
  std::vector<LoggedMetrics> epochs;  // each line has only the value "train_loss"
  std::vector<LoggedMetrics> evaluations;
  std::vector<int64_t> checkpoints;  // the steps of checkpoints
  // The following five lists are in the order of the log. They are empty without Keep::kAllSteps.
  std::vector<LoggedSeconds> seconds_lines;
  std::vector<std::string> causes;     // the names of the causes of lost time
  std::deque<LoggedVerdict> verdicts;  // the last 300 verdicts
  std::vector<LoggedReading> readings;
  std::vector<LoggedJob> jobs;
  // The last line of each of the following four events; null if the log has no such line.
  nlohmann::ordered_json seconds;
  nlohmann::ordered_json machine;
  nlohmann::ordered_json memory;
  nlohmann::ordered_json done;
  LoggedEnd end = LoggedEnd::kNone;
  std::string why;  // why the run was stopped or failed
  int64_t warnings = 0;
  std::deque<std::string> last_warnings;  // the last 5 warnings
  int64_t bad_lines = 0;

  // Returns for how many seconds jobs had trained the run at the time `time`; NaN if this is not known. Needs
  // Keep::kAllSteps.
  double TrainedAt(double time) const;
};

class RunLog {
 public:
  enum class Keep { kLastStep, kAllSteps };

  RunLog(const std::string& run_dir, Keep keep);

  // Reads the lines that were appended since the last call. Returns whether anything was appended.
  bool Read();

  // For a run of several labels: gives the accuracy in evaluations of older versions, which was the share of right
  // labels, its present name.
  static constexpr char kLabelAccuracy[] = "val_label_accuracy";
  void RenameLabelAccuracy();

  const LoggedRun& run() const { return run_; }

  // Returns the Unix time when the file was last changed; no value if there is no file.
  std::optional<double> changed() const { return changed_; }

  // Returns in words why the file could not be read; empty if the file was read.
  const std::string& why_not() const { return why_not_; }

 private:
  void AddPiece(std::string_view piece);
  void AddLine(std::string_view line);
  void AddEvent(const nlohmann::ordered_json& line, const std::string& kind);
  void AddStep(const LoggedStep& step);
  void SetLastStep(const LoggedStep& step);
  void ParseLastStep();
  void AddSeconds(const nlohmann::ordered_json& line);
  void AddReading(const nlohmann::ordered_json& line);
  double OnOneClock(double time);
  void BeginJob(double time);
  void EndJob();
  void MakeAgainFrom(int64_t step);

  std::string path_;
  Keep keep_;
  LoggedRun run_;
  std::string why_not_;
  std::optional<double> changed_;
  int64_t read_bytes_ = 0;
  uint64_t inode_ = 0;
  std::string begun_line_;     // the beginning of a line that is not complete yet
  bool skips_line_ = false;    // whether the current line is skipped because it is too long
  double clock_shift_ = 0;     // what is added to a line's time because of jumps of the clock
  std::string unparsed_step_;  // with Keep::kLastStep: the last step line, until it is parsed
};

}  // namespace lockstep
