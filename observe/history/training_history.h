// TrainingHistory: reads what became of a training, that is, of a run or of a cross-validation. The history of a
// cross-validation has the histories of its folds, and means over them.
//
// Promise: as for RunHistory: reading changes nothing in the folders, and never waits. A fold that has not begun, and a
// file that is missing or damaged, only lack their figures.
//
// what can fail -> what the caller sees -> the test that shows it (observe/history/training_history_test.cc)
//   a fold failed, was killed, or was stopped -> state() is that of the worst fold -> TrainingStates.AreTold
//   the command that trains the folds is gone, and some folds have not been trained -> state() is kStopped, or kKilled
//     if a fold was -> TrainingStates.AreTold
//   no fold has an evaluation yet -> best() has no value -> TrainingHistoryTest.HasMeans
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "observe/history/crew_file.h"
#include "observe/history/run_history.h"
#include "observe/history/run_log.h"

namespace lockstep {

// The mean of some values, and their standard deviation as a sample, which divides by the number of values less 1.
struct Spread {
  double mean = 0;
  double deviation = 0;  // NaN for fewer than two values
  int64_t count = 0;     // how many values there are
};

// Returns the spread of the values that are not NaN; a mean of NaN if there are none.
Spread SpreadOf(const std::vector<double>& values);

// The best value of a metric: of a run, or the mean of the best values of the folds.
struct BestSpread {
  std::string metric;
  Spread value;
  int64_t step = 0;  // the step of a run's best value; 0 for folds, which have a step each
};

// Returns the state of a run in words: NameOf(run.state()). A fold without a log has the state that the crew.json beside
// it says: "waiting" if it is still to be started, "starting" if its process has not written to its folder yet, or
// "failed".
std::string StateInWords(const RunHistory& run);

class TrainingHistory {
 public:
  // Reads the folder, which must be of one of the two kinds (RequireTraining()).
  explicit TrainingHistory(std::string folder, RunLog::Keep keep = RunLog::Keep::kLastStep);

  // Reads what has changed in the folder since the last read.
  void Refresh();

  const std::string& folder() const { return folder_; }
  bool has_folds() const { return has_folds_; }

  // The run, or the folds in the order of their numbers. A fold that has not begun has the state kNoLog.
  const std::deque<RunHistory>& runs() const { return runs_; }

  RunState state() const { return state_; }

  // Returns the state of a fold in words, as StateInWords() does. A fold that has a log is "waiting", too, if the command
  // that trains the folds is still to go on with it.
  std::string FoldState(size_t fold) const;

  // Return why the training was stopped or failed, its last verdict and the remedy that the verdict names. For folds it
  // is that of the first fold that has one, with the fold's number in front. Each text may be empty.
  std::string why() const;
  std::string verdict() const;
  std::string remedy() const;

  // Return the optimizer steps that were made, and those of the whole training, over all folds; 0 if the number of
  // steps of the whole training is not known yet. A fold that has not begun counts with the steps of another fold.
  int64_t step() const;
  int64_t steps() const;

  std::optional<BestSpread> best() const;

  // Returns the speed of the run, or the mean of the folds' speeds; a negative number if no speed is known.
  double samples_per_s() const;

  // Return the Unix times of the first and the last line of the logs, as RunHistory does.
  std::optional<double> start_time() const;
  double last_time() const;

  // Returns for how many seconds jobs trained the run, or the folds in all; nothing if it is not known.
  std::optional<double> trained_s() const;

 private:
  RunState StateOfFolds() const;
  const JobRecord* JobOf(size_t fold) const;
  template <typename TextOf>
  std::string FirstText(const TextOf& text_of) const;

  std::string folder_;
  RunLog::Keep keep_;
  bool has_folds_;
  std::deque<RunHistory> runs_;
  bool has_crew_ = false;
  std::vector<JobRecord> jobs_;  // of crew.json; empty for a run
  RunState state_ = RunState::kNoLog;
};

}  // namespace lockstep
