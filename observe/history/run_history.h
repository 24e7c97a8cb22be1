// RunHistory: reads the state of a run, the best value of its metric and its speed from its run folder.
//
// Promise: reading changes nothing in the folder, and never waits for the run. If a file is missing or damaged, or is a
// pipe, a link or a folder, only the figures of that file are missing.
//
// what can fail -> what the caller sees -> the test that shows it (observe/history/run_history_test.cc)
//   there is no log, or it cannot be read -> state() is kNoLog, unless a job trains in the folder
//     -> RunHistoryTest.HasNoLog
//   the job was killed, for example with kill -9 -> state() is kKilled -> RunHistoryTest.TellsHowARunEnded
//   the config cannot be read, or a newer version wrote it -> config() has no value, and why_no_config() has the reason
//     -> RunHistoryTest.ReadsWithoutConfig
//   one of the two -> Unreadable() says so -> RunHistoryTest.HasNoLog
//   an older version wrote the log, without times -> last_time() is when the file was last changed, and there is no
//     start_time() -> RunHistoryTest.ReadsOlderVersions
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/run_files.h"
#include "config/schema/config.pb.h"
#include "observe/history/run_log.h"

namespace lockstep {

enum class RunState { kTraining, kDone, kStopped, kFailed, kKilled, kNoLog };

// Returns the state in words: "training", "done", ...
std::string_view NameOf(RunState state);

struct BestValue {
  std::string metric;  // the name, such as "val_accuracy"
  double value = 0;
  int64_t step = 0;
};

class RunHistory {
 public:
  // Reads the folder. `keep` says which step lines log() keeps.
  explicit RunHistory(std::string run_dir, RunLog::Keep keep = RunLog::Keep::kLastStep);

  // Reads what has changed in the folder since the last read. Returns whether anything has changed.
  bool Refresh();

  const std::string& run_dir() const { return run_dir_; }
  const LoggedRun& log() const { return log_.run(); }
  const std::string& why_no_log() const { return log_.why_not(); }
  const std::optional<config::Config>& config() const { return config_; }
  const std::string& why_no_config() const { return why_no_config_; }

  // Returns a line for each file of the run that cannot be read: the log and the config. A fold that has not begun has
  // none.
  std::vector<std::string> Unreadable() const;

  RunState state() const { return state_; }

  // Return the number of optimizer steps and of epochs of the whole run; 0 if the number is not known.
  int64_t steps() const;
  int64_t epochs() const;

  // Returns the best value (base/best_so_far.h) of the metric that checkpoint.keep_best names or, if keep_best is not
  // set, of the first metric of the evaluations; nothing if no evaluation has a value of this metric.
  std::optional<BestValue> best() const;

  // Returns the speed that the log's `done` line has for the whole run. If there is no such speed, returns the speed of
  // the last step line; a negative number if neither speed is known.
  double samples_per_s() const;

  // Return the log's last verdict, which says what the run lost time to, and the remedy that the verdict names; empty
  // if the log has no verdict.
  std::string verdict() const;
  std::string remedy() const;

  // Return the Unix times of the log's first and last line. If the lines have no times, there is no start_time(), and
  // last_time() is when the log or the folder was last changed.
  std::optional<double> start_time() const { return log().first_time; }
  double last_time() const;

  // Returns for how many seconds jobs trained the run; nothing if the log's lines have no times. A job counts from its
  // first line to its last line, so the time between two jobs does not count.
  std::optional<double> trained_s() const;

 private:
  std::string run_dir_;
  RunLog log_;
  std::optional<config::Config> config_;
  std::string why_no_config_;
  RunState state_ = RunState::kNoLog;
};

}  // namespace lockstep
