// RunHistory: what a run folder says of its run: where it stands, how good it is, how fast it trained.
//
// Promise: reading changes nothing in the folder and never waits for it. A part that is missing or damaged, or is a
// pipe, a link or a folder where a file is expected, leaves out what it would say, and nothing else.
//
// what can fail -> what the caller sees -> the test that shows it (observe/history/run_history_test.cc)
//   the folder has neither log nor lock -> IsRunFolder() is false -> RunHistory.FindsRuns
//   there is no log, or it cannot be read -> RunState::kNoLog, unless a job trains -> RunHistory.HasNoLog
//   the job was killed, also with kill -9 -> RunState::kKilled -> RunHistory.TellsHowARunEnded
//   the config cannot be read, or is a newer version's -> no config(), and why_no_config()
//     -> RunHistory.ReadsWithoutConfig
//   the log is an older version's, without times -> its file's time of change stands for its end, and there is no start
//     -> RunHistory.ReadsOlderVersions
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "observe/history/run_log.h"
#include "trainer/config/schema/config.pb.h"

namespace lockstep {

enum class RunState { kTraining, kDone, kStopped, kFailed, kKilled, kNoLog };

// "training", "done", ...
std::string_view NameOf(RunState state);

struct BestValue {
  std::string metric;  // "val_accuracy"
  double value = 0;
  int64_t step = 0;
};

class RunHistory {
 public:
  explicit RunHistory(std::string run_dir, RunLog::Keep keep = RunLog::Keep::kLastStep);

  // Reads what has changed since.
  void Refresh();

  const std::string& run_dir() const { return run_dir_; }
  const LoggedRun& log() const { return log_.run(); }
  const std::string& why_no_log() const { return log_.why_not(); }
  const std::optional<config::Config>& config() const { return config_; }
  const std::string& why_no_config() const { return why_no_config_; }

  RunState state() const { return state_; }

  // Optimizer steps of the whole run, and its epochs; 0: not known.
  int64_t steps() const;
  int64_t epochs() const;

  // Of the metric that checkpoint.keep_best names, or else the first of the validation's.
  std::optional<BestValue> best() const;

  // Of the whole run once it is done, until then of its last step line; negative: not known.
  double samples_per_s() const;

  // The last verdict on where the run's seconds went, and what would mend it; empty: none.
  std::string verdict() const;
  std::string remedy() const;

  // Unix time of the first line, where lines have times; and of the last one or, without, the folder's last change.
  std::optional<double> start_time() const { return log().first_time; }
  double last_time() const;

 private:
  std::string run_dir_;
  RunLog log_;
  std::optional<config::Config> config_;
  std::string why_no_config_;
  RunState state_ = RunState::kNoLog;
};

// Returns whether `path` is a folder with a run's log or lock. A config alone makes no run folder: users keep theirs
// beside their runs.
bool IsRunFolder(const std::string& path);

// Throws Error (kUsage) if `path` is not a run folder.
void RequireRunFolder(const std::string& path);

// The run folders right below `folder`, in no order. Throws Error (kUsage) where it is no folder that can be read.
std::vector<std::string> RunFoldersIn(const std::string& folder);

}  // namespace lockstep
