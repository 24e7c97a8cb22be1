#include "observe/history/training_history.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

constexpr char kNothing[] = "";
constexpr char kStart[] = "{\"event\":\"start\",\"steps\":40}\n";
constexpr char kDone[] = "{\"event\":\"done\",\"step\":40,\"samples_per_s\":100}\n";
constexpr char kStopped[] = "{\"event\":\"stopped\",\"step\":7,\"why\":\"a signal\"}\n";
constexpr char kFailed[] = "{\"event\":\"failed\",\"step\":7,\"reason\":\"no disk\"}\n";

struct HistoryCase {
  std::vector<std::string> logs;  // of the folds; a fold without a log has not begun
  std::vector<JobState> jobs;     // of the folds and of the commands after them
  bool has_crew;
  RunState state;
  std::vector<std::string> fold_states;
  std::string why;
};

class TrainingStates : public testing::TestWithParam<HistoryCase> {};

TEST_P(TrainingStates, AreTold) {
  const HistoryCase& given = GetParam();
  const std::string folder = NewFolder();
  for (size_t i = 0; i < given.logs.size(); ++i) {
    if (given.logs[i].empty()) continue;
    WriteFile(fmt::format("{}/fold-{}/log.jsonl", folder, i), kStart + given.logs[i]);
  }
  auto crew = std::make_unique<CrewFile>(folder);
  std::vector<JobRecord> jobs;
  for (size_t i = 0; i < given.jobs.size(); ++i) {
    jobs.push_back({.name = i < given.logs.size() ? fmt::format("fold-{}", i) : "evaluate",
                    .state = given.jobs[i]});
    if (given.jobs[i] != JobState::kFailed) continue;
    jobs.back().end = 1;
    jobs.back().line = "its line";
  }
  crew->Write(jobs);
  if (!given.has_crew) crew.reset();
  const TrainingHistory history(folder);
  EXPECT_EQ(NameOf(history.state()), NameOf(given.state));
  EXPECT_EQ(history.why(), given.why);
  for (size_t i = 0; i < given.logs.size(); ++i) {
    EXPECT_EQ(history.FoldState(i), given.fold_states[i]) << i;
  }
}

constexpr JobState kWaits = JobState::kWaiting;
constexpr JobState kRuns = JobState::kRunning;
constexpr JobState kEnded = JobState::kDone;
constexpr JobState kHalted = JobState::kStopped;
constexpr JobState kBroken = JobState::kFailed;

INSTANTIATE_TEST_SUITE_P(States, TrainingStates,
                         testing::Values(HistoryCase{{kNothing, kNothing},
                                                     {kWaits, kWaits},
                                                     true,
                                                     RunState::kTraining,
                                                     {"waiting", "waiting"},
                                                     ""},
                                         HistoryCase{{kNothing, kNothing},
                                                     {kRuns, kWaits},
                                                     true,
                                                     RunState::kTraining,
                                                     {"starting", "waiting"},
                                                     ""},
                                         HistoryCase{{kDone, kNothing},
                                                     {kEnded, kWaits},
                                                     true,
                                                     RunState::kTraining,
                                                     {"done", "waiting"},
                                                     ""},
                                         HistoryCase{{kDone, kDone},
                                                     {kEnded, kEnded, kRuns},
                                                     true,
                                                     RunState::kTraining,
                                                     {"done", "done"},
                                                     ""},
                                         HistoryCase{{kDone, kDone},
                                                     {kEnded, kEnded, kEnded},
                                                     false,
                                                     RunState::kDone,
                                                     {"done", "done"},
                                                     ""},
                                         HistoryCase{{kDone, kDone},
                                                     {kEnded, kEnded, kRuns},
                                                     false,
                                                     RunState::kStopped,
                                                     {"done", "done"},
                                                     ""},
                                         HistoryCase{{kDone, kDone},
                                                     {kEnded, kEnded, kBroken},
                                                     false,
                                                     RunState::kFailed,
                                                     {"done", "done"},
                                                     "evaluate: its line"},
                                         HistoryCase{{kDone, kStopped},
                                                     {kEnded, kHalted},
                                                     false,
                                                     RunState::kStopped,
                                                     {"done", "stopped"},
                                                     "fold 1: a signal"},
                                         HistoryCase{{kDone, kNothing},
                                                     {kEnded, kWaits},
                                                     false,
                                                     RunState::kStopped,
                                                     {"done", "waiting"},
                                                     ""},
                                         HistoryCase{{"{}\n", kStopped},
                                                     {kHalted, kHalted},
                                                     false,
                                                     RunState::kKilled,
                                                     {"killed", "stopped"},
                                                     "fold 1: a signal"},
                                         HistoryCase{{kStopped, kFailed},
                                                     {kHalted, kBroken},
                                                     false,
                                                     RunState::kFailed,
                                                     {"stopped", "failed"},
                                                     "fold 1: no disk"},
                                         HistoryCase{{kNothing, kStopped},
                                                     {kBroken, kHalted},
                                                     false,
                                                     RunState::kFailed,
                                                     {"failed", "stopped"},
                                                     "fold 0: its line"}));

std::string Eval(double loss, int64_t step) {
  return fmt::format("{{\"event\":\"eval\",\"step\":{},\"val_loss\":{}}}\n", step, loss);
}

TEST(TrainingHistoryTest, HasMeans) {
  const std::string folder = NewFolder();
  CrewFile(folder).Write({{.name = "fold-0"}, {.name = "fold-1"}, {.name = "fold-2"}});
  EXPECT_FALSE(TrainingHistory(folder).best());
  TrainingHistory history(folder);
  WriteFile(folder + "/fold-0/log.jsonl", kStart + Eval(2, 10) + Eval(3, 20) + kDone);
  WriteFile(folder + "/fold-2/log.jsonl", kStart + Eval(8, 10) + Eval(5, 20) + kStopped);
  history.Refresh();
  ASSERT_TRUE(history.best());
  EXPECT_EQ(history.best()->metric, "val_loss");
  EXPECT_EQ(history.best()->value.mean, 3.5);  // of 2 and 5
  EXPECT_DOUBLE_EQ(history.best()->value.deviation, std::sqrt(4.5));
  EXPECT_EQ(history.best()->value.count, 2);
  EXPECT_EQ(history.step(), 47);
  EXPECT_EQ(history.steps(), 120);
  EXPECT_EQ(history.samples_per_s(), 100);
}

TEST(TrainingHistoryTest, IsThatOfARun) {
  const std::string folder = NewFolder();
  WriteFile(folder + "/log.jsonl", kStart + Eval(2, 10) + Eval(3, 20) + kStopped);
  const TrainingHistory history(folder);
  EXPECT_FALSE(history.has_folds());
  EXPECT_EQ(history.state(), RunState::kStopped);
  EXPECT_EQ(history.why(), "a signal");
  EXPECT_EQ(history.best()->value.mean, 2);
  EXPECT_TRUE(std::isnan(history.best()->value.deviation));
  EXPECT_EQ(history.best()->step, 10);
  EXPECT_EQ(history.steps(), 40);
}

}  // namespace
}  // namespace lockstep
