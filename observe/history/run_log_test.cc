#include "observe/history/run_log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr char kStart[] = R"({"event":"start","time":100.5,"steps":90,"samples":640})";

std::string Step(int64_t step, double loss = 1) {
  return fmt::format(
      R"({{"event":"step","time":{},"step":{},"epoch":{},"loss":{},"samples_per_s":50.0}})",
      100 + step, step, 1 + (step - 1) / 10, loss);
}

std::string Eval(int64_t step, double loss) {
  return fmt::format(
      R"({{"event":"eval","time":{},"step":{},"epoch":{},"val_loss":{},"val_accuracy":0.5}})",
      100.5 + static_cast<double>(step), step, step / 10, loss);
}

std::string Lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

std::vector<int64_t> StepsOf(const auto& lines) {
  std::vector<int64_t> steps;
  for (const auto& line : lines) steps.push_back(line.step);
  return steps;
}

class Log : public testing::TestWithParam<RunLog::Keep> {
 protected:
  bool KeepsAll() const { return GetParam() == RunLog::Keep::kAllSteps; }

  LoggedRun Read(const std::string& text) {
    WriteFile(path_, text);
    RunLog log(folder_, GetParam());
    log.Read();
    EXPECT_EQ(log.why_not(), "");
    return log.run();
  }

  std::string folder_ = NewFolder();
  std::string path_ = folder_ + "/log.jsonl";
};

TEST_P(Log, TellsOfARun) {
  const LoggedRun run = Read(Lines(
      {kStart, Step(1, 3), Step(10, 2),
       R"({"event":"epoch","time":110.2,"step":10,"epoch":1,"train_loss":2.5,"seconds":9})",
       Eval(10, 0.25), R"({"event":"warning","time":110.7,"reason":"beware"})",
       R"({"event":"checkpoint","time":111,"step":10,"bytes":5})",
       R"({"event":"machine","time":112,"cpu_use":0.5})", R"({"event":"unheard of","time":112.5})",
       R"({"event":"seconds","time":113,"step":10,"verdict":"fine"})",
       R"({"event":"failed","time":114,"step":11,"status":2,"reason":"the loss is nan"})"}));
  EXPECT_EQ(run.start.at("samples"), 640);
  EXPECT_EQ(run.first_time, 100.5);
  EXPECT_EQ(run.last_time, 114);
  EXPECT_EQ(run.step, 10);
  EXPECT_EQ(run.epoch, 1);
  ASSERT_TRUE(run.last_step);
  EXPECT_EQ(run.last_step->step, 10);
  EXPECT_EQ(run.last_step->loss, 2);
  EXPECT_TRUE(std::isnan(run.last_step->left_s));
  if (KeepsAll()) {
    EXPECT_THAT(StepsOf(run.steps), ElementsAre(1, 10));
  }
  EXPECT_EQ(run.epochs.at(0).ValueOf("train_loss"), 2.5);
  EXPECT_THAT(run.evaluations.at(0).values,
              ElementsAre(Pair("val_loss", 0.25), Pair("val_accuracy", 0.5)));
  EXPECT_THAT(run.checkpoints, ElementsAre(10));
  EXPECT_THAT(run.last_warnings, ElementsAre("beware"));
  EXPECT_EQ(run.machine.at("cpu_use"), 0.5);
  EXPECT_EQ(run.seconds.at("verdict"), "fine");
  EXPECT_EQ(run.end, LoggedEnd::kFailed);
  EXPECT_EQ(run.why, "the loss is nan");
  EXPECT_EQ(run.bad_lines, 0);
}

// Checks that the newest lines count. The run is killed after step 30, resumed from the checkpoint of step 10, and
// killed again after step 20.
TEST_P(Log, TakesTheLaterOfStepsThatWereMadeAgain) {
  const std::string resume = R"({"event":"resume","time":200,"step":10,"ranks":1})";
  const std::vector<std::string> killed{kStart,        Step(10), Eval(10, 9),  Step(20),
                                        Eval(20, 0.1), Step(30), Eval(30, 0.1)};
  std::vector<std::string> lines = killed;
  lines.insert(lines.end(), {kStart, resume});
  LoggedRun run = Read(Lines(lines));
  EXPECT_EQ(run.step, 10);
  EXPECT_EQ(run.starts, 2);
  EXPECT_FALSE(run.last_step);
  EXPECT_THAT(StepsOf(run.evaluations), ElementsAre(10));
  lines.insert(lines.end(), {Step(20, 7), Eval(20, 0.3)});
  run = Read(Lines(lines));
  EXPECT_EQ(run.step, 20);
  EXPECT_EQ(run.last_step->loss, 7);
  EXPECT_THAT(StepsOf(run.evaluations), ElementsAre(10, 20));
  EXPECT_EQ(run.evaluations.back().values.front().second, 0.3);
  if (KeepsAll()) {
    EXPECT_THAT(StepsOf(run.steps), ElementsAre(10, 20));
  }
  // The run is started for the third time, without a checkpoint, so it begins with the first step.
  lines.insert(lines.end(), {kStart, Step(1)});
  run = Read(Lines(lines));
  EXPECT_EQ(run.step, 1);
  EXPECT_THAT(run.evaluations, testing::IsEmpty());
}

TEST_P(Log, ReadsOlderVersions) {
  const LoggedRun run = Read(
      Lines({R"({"event":"start","restarts":0,"steps":23})",
             R"({"event":"step","step":23,"epoch":1,"loss":0.5,"samples_per_s":9.0})",
             R"({"event":"eval","step":23,"epoch":1,"loss":0.75,"accuracy":0.9,"auc":null})",
             R"({"event":"done","step":23,"epoch":1,"loss":0.75,"accuracy":0.9,"total_s":1.5})"}));
  EXPECT_FALSE(run.first_time);
  const LoggedMetrics& metrics = run.evaluations.at(0);
  EXPECT_EQ(metrics.ValueOf("val_loss"), 0.75);
  EXPECT_EQ(metrics.ValueOf("val_accuracy"), 0.9);
  EXPECT_TRUE(std::isnan(metrics.ValueOf("val_auc")));
  EXPECT_TRUE(std::isnan(metrics.ValueOf("loss")));
  EXPECT_EQ(run.end, LoggedEnd::kDone);
}

// Appends a log to the file byte by byte, and calls Read() after each byte.
TEST_P(Log, ReadsWhatIsAppended) {
  const std::string text = Lines({kStart, Step(1), Step(10), Eval(10, 0.5)});
  WriteFile(path_, "");
  RunLog log(folder_, GetParam());
  EXPECT_FALSE(log.Read());
  std::ofstream file(path_, std::ios::app);
  for (size_t i = 0; i < text.size(); ++i) {
    file << text[i] << std::flush;
    EXPECT_TRUE(log.Read());
    const size_t whole = std::string_view(text).substr(0, i + 1).find_last_of('\n');
    const size_t lines =
        whole == std::string::npos ? 0 : std::count(text.begin(), text.begin() + whole + 1, '\n');
    EXPECT_EQ(log.run().starts, lines >= 1);
    EXPECT_EQ(log.run().step, lines >= 3 ? 10 : lines == 2) << i;
    EXPECT_EQ(log.run().evaluations.size(), lines >= 4);
  }
  EXPECT_FALSE(log.Read());
  EXPECT_EQ(log.run().bad_lines, 0);
}

TEST_P(Log, ReadsANewFileAnew) {
  WriteFile(path_, Lines({kStart, Step(10), Eval(10, 0.5)}));
  RunLog log(folder_, GetParam());
  log.Read();
  fs::rename(path_, path_ + ".old");
  WriteFile(path_, Lines({kStart, Step(1), Step(2), Step(3), Step(4), Step(5), Step(6)}));
  log.Read();
  EXPECT_EQ(log.run().starts, 1);
  EXPECT_EQ(log.run().step, 6);
  EXPECT_EQ(log.run().evaluations.size(), 0);
  WriteFile(path_, Lines({kStart}));  // shorter than before
  log.Read();
  EXPECT_EQ(log.run().step, 0);
}

TEST_P(Log, LeavesOutWhatIsNoLine) {
  const std::string deep(1'000'000, '[');
  const std::vector<std::string> bad{"",
                                     "\xff\xfe\x01",
                                     "null",
                                     "[1, 2]",
                                     R"({"event":3})",
                                     R"({"time":1})",
                                     R"({"event":"step","step":"x"})",
                                     R"({"event":"step","step":-4})",
                                     R"({"event":"step","step":1e400})",
                                     R"({"event":"step","step":18446744073709551615})",
                                     R"({"event":"step","loss":1})",
                                     R"({"event":"eval","step":20,"val_loss":"low"})",
                                     R"({"event":"resume","step":1.5})",
                                     R"({"event":"ste)",
                                     R"({"event":"eval","step":)" + deep,
                                     std::string(std::size_t{17} << 20, 'x')};
  std::string text = Lines({kStart, Step(10)});
  for (const std::string& line : bad) text += line + '\n';
  text += Lines({Eval(10, 0.5)});
  const LoggedRun run = Read(text);
  EXPECT_EQ(static_cast<size_t>(run.bad_lines), bad.size());
  EXPECT_EQ(run.step, 10);
  EXPECT_EQ(run.evaluations.size(), 1);
}

TEST_P(Log, SaysWhyThereIsNone) {
  RunLog log(folder_, GetParam());
  EXPECT_FALSE(log.Read());
  EXPECT_EQ(log.why_not(), "No such file or directory");
  EXPECT_FALSE(log.changed());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(log.Read());
  EXPECT_EQ(log.why_not(), "it is a pipe");
  fs::remove(path_);
  WriteFile(folder_ + "/other.jsonl", Lines({kStart}));
  fs::create_symlink("other.jsonl", path_);
  EXPECT_FALSE(log.Read());
  EXPECT_EQ(log.why_not(), "it is a link");
  EXPECT_EQ(log.run().starts, 0);
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_FALSE(log.Read());
  EXPECT_THAT(log.why_not(), HasSubstr("a folder"));
}

INSTANTIATE_TEST_SUITE_P(RunLog, Log,
                         testing::Values(RunLog::Keep::kLastStep, RunLog::Keep::kAllSteps));

}  // namespace
}  // namespace lockstep
