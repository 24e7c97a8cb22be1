#include "observe/history/run_history.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "ckpt/run_lock.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr char kStart[] = R"({"event":"start","time":100,"steps":90})";
constexpr char kStep[] =
    R"({"event":"step","time":110,"step":20,"epoch":2,"loss":1.5,"samples_per_s":50.0})";
constexpr char kEvals[] =
    R"({"event":"eval","time":111,"step":10,"epoch":1,"val_loss":0.5,"val_accuracy":0.7}
{"event":"eval","time":112,"step":20,"epoch":2,"val_loss":0.4,"val_accuracy":0.6}
{"event":"eval","time":113,"step":30,"epoch":3,"val_loss":null,"val_accuracy":0.7}
)";

class RunHistoryTest : public testing::Test {
 protected:
  RunHistory Of(const std::string& log, const std::string& config = "epochs: 9") {
    WriteFile(run_ + "/config.pbtxt", config);
    WriteFile(run_ + "/log.jsonl", log);
    return RunHistory(run_);
  }

  std::string run_ = NewFolder();
};

TEST_F(RunHistoryTest, TellsHowARunEnded) {
  const std::string begun = std::string(kStart) + '\n' + kStep + '\n';
  EXPECT_EQ(Of(begun).state(), RunState::kKilled);
  EXPECT_EQ(
      Of(begun + R"({"event":"stopped","step":21,"epoch":3,"why":"a signal"})" + '\n').state(),
      RunState::kStopped);
  EXPECT_EQ(Of(begun + R"({"event":"failed","step":21,"status":2,"reason":"x"})" + '\n').state(),
            RunState::kFailed);
  const std::string done = R"({"event":"done","step":90,"epoch":9,"samples_per_s":70.0})";
  const RunHistory history = Of(begun + done + '\n');
  EXPECT_EQ(history.state(), RunState::kDone);
  EXPECT_EQ(history.samples_per_s(), 70);
  // The last line is cut off.
  EXPECT_EQ(Of(begun + done).state(), RunState::kKilled);
  EXPECT_EQ(Of(begun + done).samples_per_s(), 50);
  // The run was started again after `done`, and was then killed.
  EXPECT_EQ(Of(begun + done + '\n' + begun).state(), RunState::kKilled);
  EXPECT_EQ(Of(begun).steps(), 90);
  EXPECT_EQ(Of(begun).epochs(), 9);
  EXPECT_EQ(Of(begun).start_time(), 100);
  EXPECT_EQ(Of(begun).last_time(), 110);
}

TEST_F(RunHistoryTest, TrainsWhileTheLockIsHeld) {
  RunHistory history = Of(std::string(kStart) + '\n');
  EXPECT_EQ(history.state(), RunState::kKilled);
  {
    const RunLock lock(run_, "a job");
    history.Refresh();
    EXPECT_EQ(history.state(), RunState::kTraining);
    fs::remove(run_ + "/log.jsonl");
    EXPECT_EQ(RunHistory(run_).state(), RunState::kTraining);
  }
  EXPECT_EQ(RunHistory(run_).state(), RunState::kNoLog);
}

TEST_F(RunHistoryTest, HasNoLog) {
  WriteFile(run_ + "/config.pbtxt", "epochs: 9");
  ASSERT_EQ(mkfifo((run_ + "/log.jsonl").c_str(), 0600), 0);
  const RunHistory history(run_);
  EXPECT_EQ(history.state(), RunState::kNoLog);
  EXPECT_EQ(history.why_no_log(), "it is a pipe");
  EXPECT_THAT(history.Unreadable(), testing::ElementsAre(run_ + "/log.jsonl: it is a pipe"));
  EXPECT_EQ(history.steps(), 0);
  EXPECT_LT(history.samples_per_s(), 0);
  EXPECT_FALSE(history.best());
  EXPECT_GT(history.last_time(), 1e9);
}

TEST_F(RunHistoryTest, FindsTheBest) {
  const std::string log = std::string(kStart) + '\n' + kEvals;
  std::optional<BestValue> best = Of(log).best();
  ASSERT_TRUE(best);
  EXPECT_EQ(best->metric, "val_loss");
  EXPECT_EQ(best->value, 0.4);
  EXPECT_EQ(best->step, 20);
  best = Of(log, R"(checkpoint { keep_best: "accuracy" })").best();
  ASSERT_TRUE(best);
  EXPECT_EQ(best->metric, "val_accuracy");
  EXPECT_EQ(best->value, 0.7);
  EXPECT_EQ(best->step, 10);  // the first of two equal values
  EXPECT_FALSE(Of(log, R"(checkpoint { keep_best: "auc" })").best());
  EXPECT_FALSE(Of(kStart).best());
}

// Checks that the accuracy of an older run of several labels, which was the share of right labels, is compared with
// what today's program calls label_accuracy, also in a run that began with the older program and was continued today.
TEST_F(RunHistoryTest, ReadsTheLabelAccuracyOfOlderRuns) {
  const std::string older =
      R"({"event":"eval","step":10,"epoch":1,"val_loss":0.5,"val_accuracy":0.8})"
      "\n";
  const std::string newer =
      R"({"event":"eval","step":20,"epoch":2,"val_loss":0.4,"val_accuracy":0.9,"val_label_accuracy":0.7})"
      "\n";
  const std::string task = "data { task: MULTI_LABEL } checkpoint { keep_best: ";
  const auto best_of = [&](const std::string& lines, const std::string& metric) {
    const std::optional<BestValue> best =
        Of(std::string(kStart) + '\n' + lines, task + '"' + metric + "\" }").best();
    return best ? fmt::format("{} {} {}", best->metric, best->value, best->step) : "";
  };
  EXPECT_EQ(best_of(older, "accuracy"), "val_label_accuracy 0.8 10");
  EXPECT_EQ(best_of(older + newer, "label_accuracy"), "val_label_accuracy 0.8 10");
  EXPECT_EQ(best_of(newer, "accuracy"), "val_accuracy 0.9 20");
}

TEST_F(RunHistoryTest, TellsTheVerdict) {
  const RunHistory history =
      Of(R"({"event":"seconds","step":9,"verdict":"lost 9 %","remedy":"loader.threads 2 -> 6"})"
         "\n");
  EXPECT_EQ(history.verdict(), "lost 9 %");
  EXPECT_EQ(history.remedy(), "loader.threads 2 -> 6");
  EXPECT_EQ(Of(R"({"event":"seconds","verdict":7})"
               "\n")
                .verdict(),
            "");
  EXPECT_EQ(Of("").verdict(), "");
}

TEST_F(RunHistoryTest, ReadsWithoutConfig) {
  const RunHistory newer = Of(kEvals, "field_of_tomorrow: 3");
  EXPECT_FALSE(newer.config());
  EXPECT_THAT(newer.why_no_config(), HasSubstr("field_of_tomorrow"));
  EXPECT_EQ(newer.best()->metric, "val_loss");
  fs::remove(run_ + "/config.pbtxt");
  fs::create_directory(run_ + "/config.pbtxt");
  EXPECT_THAT(RunHistory(run_).why_no_config(), HasSubstr("a folder"));
}

TEST_F(RunHistoryTest, ReadsOlderVersions) {
  const RunHistory history = Of(R"({"event":"start","steps":23}
{"event":"eval","step":23,"epoch":1,"loss":0.75,"accuracy":0.9}
{"event":"done","step":23,"epoch":1,"loss":0.75,"accuracy":0.9,"samples_per_s":12.0}
)");
  EXPECT_EQ(history.state(), RunState::kDone);
  EXPECT_FALSE(history.start_time());
  struct stat status {};
  ASSERT_EQ(stat((run_ + "/log.jsonl").c_str(), &status), 0);
  EXPECT_NEAR(history.last_time(), static_cast<double>(status.st_mtime), 1);
  EXPECT_EQ(history.best()->metric, "val_loss");
}

TEST_F(RunHistoryTest, CountsTheTimeOfEachJob) {
  const std::string first = R"({"event":"start","time":100})"
                            "\n"
                            R"({"event":"step","time":103,"step":1})"
                            "\n";
  const std::string second = R"({"event":"start","time":5000})"
                             "\n"
                             R"({"event":"resume","time":5001,"step":1})"
                             "\n"
                             R"({"event":"done","time":5010,"step":2})"
                             "\n";
  EXPECT_EQ(Of(first).trained_s(), 3);
  EXPECT_EQ(Of(first + second).trained_s(), 13);
  EXPECT_EQ(Of(R"({"event":"start"})"
               "\n")
                .trained_s(),
            std::nullopt);
}

struct ClockCase {
  std::vector<std::vector<double>>
      jobs;  // the times of the lines of each job, the first of which is its start line
  double trained_s;
};

class ClockJumps : public testing::TestWithParam<ClockCase> {};

TEST_P(ClockJumps, DoNotCount) {
  std::string log;
  int step = 0;
  for (const std::vector<double>& job : GetParam().jobs) {
    for (size_t i = 0; i < job.size(); ++i) {
      log += i == 0 ? fmt::format(R"({{"event":"start","time":{}}})", job[i])
                    : fmt::format(R"({{"event":"step","step":{},"time":{},"loss":1}})", ++step,
                                  job[i]);
      log += '\n';
    }
  }
  const std::string run = NewFolder();
  WriteFile(run + "/log.jsonl", log);
  const RunHistory history(run, RunLog::Keep::kAllSteps);
  ASSERT_TRUE(history.trained_s());
  EXPECT_DOUBLE_EQ(*history.trained_s(), GetParam().trained_s);
  EXPECT_EQ(history.last_time(), GetParam().jobs.back().back());  // as the clock had it
  double before = 0;
  for (const LoggedStep& line : history.log().steps) {
    const double at = history.log().TrainedAt(line.time);
    EXPECT_GE(at, before);
    EXPECT_LE(at, GetParam().trained_s);
    before = at;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Clocks, ClockJumps,
    testing::Values(ClockCase{{{1000, 1005, 1010}}, 10},
                    ClockCase{{{1000, 1005}, {2000, 2010}}, 15},
                    ClockCase{{{1000, 1005, 1010, 500, 505, 507}}, 17},  // set back
                    ClockCase{{{1000, 1005, 4e8, 4e8 + 5}}, 10},         // set forward
                    ClockCase{{{1000, 1010}, {100, 107}}, 17},           // between two jobs
                    ClockCase{{{1000, 1010, 3, 4}, {2, 5}, {5000, 5001}}, 15},
                    ClockCase{{{1000, 1000 + 80'000.0}}, 80'000}));  // a long evaluation

}  // namespace
}  // namespace lockstep
