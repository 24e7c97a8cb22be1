// RunLog: what a run's log.jsonl says (trainer/run/run_folder.h lists its lines), also while a job writes it.
//
// Promise: any file is read to its end. A line that is not whole yet is read once it is. A line that is no JSON object,
// or whose fields have other types than a log's, is counted and left out. Reading takes memory for the lines that are
// kept and no more. With Keep::kLastStep, which reads a million step lines in a fraction of a second, only the last step
// line is looked at as a whole; of the others only the step counts.
//
// Invariants:
//   1. Where a run makes steps again, the later lines count: a line of a step takes the place of all lines of this step
//      and later ones.
//   2. Names of a validation's metrics begin with "val_", also those of older versions, which wrote "loss".
//
// what can fail -> what the caller sees -> the test that shows it (observe/history/run_log_test.cc)
//   there is no log, or a pipe, link or folder in its place -> why_not() says so, and there are no lines
//     -> RunLog.SaysWhyThereIsNone
//   the last line is cut off -> it is not read until it is whole -> RunLog.ReadsWhatIsAppended
//   a line is no JSON, has a wrong type, or is longer than any log's -> it is counted in bad_lines
//     -> RunLog.LeavesOutWhatIsNoLine
//   the file is another one than before, or shorter -> it is read from its beginning -> RunLog.ReadsANewFileAnew
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// A number that the log does not have is NaN.
struct LoggedStep {
  int64_t step = 0;
  int64_t epoch = 0;
  double time = 0;
  double loss = 0;
  double lr = 0;
  double samples_per_s = 0;
  double data_wait = 0;
  double left_s = 0;
};

struct LoggedMetrics {
  int64_t step = 0;
  int64_t epoch = 0;
  std::vector<std::pair<std::string, double>> values{};

  // NaN where there is none of that name.
  double ValueOf(std::string_view name) const;
};

// How the last line says that the run ended.
enum class LoggedEnd { kNone, kDone, kStopped, kFailed };

struct LoggedRun {
  nlohmann::ordered_json start;  // the last such line; null: there is none
  int64_t starts = 0;
  std::optional<double> first_time;  // of lines with a time
  std::optional<double> last_time;
  int64_t step = 0;  // the last that was made
  int64_t epoch = 0;
  std::optional<LoggedStep> last_step;
  std::vector<LoggedStep> steps;           // by step; only with kAllSteps
  std::vector<LoggedMetrics> epochs;       // train_loss, by step
  std::vector<LoggedMetrics> evaluations;  // by step
  std::vector<int64_t> checkpoints;        // steps, in order
  nlohmann::ordered_json seconds;  // the last line of each of these kinds; null: there is none
  nlohmann::ordered_json machine;
  nlohmann::ordered_json done;
  LoggedEnd end = LoggedEnd::kNone;
  std::string why;  // it was stopped, or failed
  int64_t warnings = 0;
  std::deque<std::string> last_warnings;  // a few
  int64_t bad_lines = 0;
};

class RunLog {
 public:
  enum class Keep { kLastStep, kAllSteps };

  RunLog(const std::string& run_dir, Keep keep);

  // Reads what was appended since the last call. Returns whether there was anything new.
  bool Read();

  const LoggedRun& run() const { return run_; }

  // Unix time of the file's last change; nothing: there is no file.
  std::optional<double> changed() const { return changed_; }

  // In words; empty: it could be read.
  const std::string& why_not() const { return why_not_; }

 private:
  void AddPiece(std::string_view piece);
  void AddLine(std::string_view line);
  void AddEvent(const nlohmann::ordered_json& line, const std::string& kind);
  void SetLastStep(const nlohmann::ordered_json& line);
  void MakeAgainFrom(int64_t step);

  std::string path_;
  Keep keep_;
  LoggedRun run_;
  std::string why_not_;
  std::optional<double> changed_;
  int64_t read_bytes_ = 0;
  uint64_t inode_ = 0;
  std::string begun_line_;     // that is not whole yet
  bool skips_line_ = false;    // it is too long
  std::string unparsed_step_;  // the last step line, with kLastStep
};

}  // namespace lockstep
