#include "observe/sinks/alert_sink.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/files/file_descriptor.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr double kLongS = 60;

void WaitUntil(const auto& condition) {
  const double end = SecondsSinceBoot() + kLongS;
  while (!condition()) {
    ASSERT_LT(SecondsSinceBoot(), end) << "it did not come to be";
    std::this_thread::yield();
  }
}

SecondsReport ReportOf(double share) {
  return {.step = 9, .steps = 9, .wall_s = 10, .ideal_s = 10 * share, .verdict = "it decodes"};
}

class Alert : public testing::Test {
 protected:
  std::unique_ptr<EventSink> SinkOf(const std::string& command, double stall_s = 1000) {
    return NewAlertSink({.command = command, .run_dir = "the/run", .stall_s = stall_s}, steps_);
  }

  // Returns a command that appends a line to the file that told() reads.
  std::string Tells() const {
    return "echo \"$LOCKSTEP_ALERT|$LOCKSTEP_RUN|$LOCKSTEP_MESSAGE\" >> " + path_;
  }
  std::string told() const { return ReadFile(path_); }

  std::string folder_ = NewFolder();
  std::string path_ = folder_ + "/told";
  std::shared_ptr<std::atomic<int64_t>> steps_ = std::make_shared<std::atomic<int64_t>>(0);
};

TEST_F(Alert, AFailureIsToldBeforeTheProcessEnds) {
  const auto sink = SinkOf(Tells());
  sink->On(RunFailed{.step = 7, .status = 5, .reason = "rank 1 \"died\""});
  EXPECT_EQ(told(), "failed|the/run|step 7: status 5: rank 1 \"died\"\n");
}

TEST_F(Alert, ASlowRunIsToldOnceUntilItRecovers) {
  {
    const auto sink = SinkOf(Tells());
    sink->On(ReportOf(0.6));
  }
  EXPECT_EQ(told(), "");
  {
    const auto sink = SinkOf(Tells());
    sink->On(ReportOf(0.4));
    sink->On(ReportOf(0.3));
    WaitUntil([&] { return !told().empty(); });
  }
  const std::string line =
      "slow|the/run|step 9: trains at 40 % of its own best speed, less than observe.alert_below: "
      "it decodes\n";
  EXPECT_EQ(told(), line);
  {
    const auto sink = SinkOf(Tells());
    sink->On(ReportOf(0.4));
    WaitUntil([&] { return told() == line + line; });
    sink->On(ReportOf(0.9));
    sink->On(ReportOf(0.4));
    WaitUntil([&] { return told() == line + line + line; });
  }
}

TEST_F(Alert, AStallIsToldOnceUntilAStepIsMade) {
  const auto sink = SinkOf(Tells(), 1.5);
  *steps_ = 3;
  WaitUntil([&] { return !told().empty(); });
  EXPECT_THAT(told(), testing::MatchesRegex("stalled.the/run.no step for [0-9]+ s after step 3\n"));
  *steps_ = 4;
  WaitUntil([&] { return told().find("after step 4\n") != std::string::npos; });
  EXPECT_THAT(told(), testing::MatchesRegex("stalled[^\n]*\nstalled[^\n]*\n"));
}

TEST_F(Alert, AnEvaluationIsNoStall) {
  const auto sink = SinkOf(Tells(), 0.01);
  sink->On(RunStarted{.validation_samples = 1});
  sink->On(EpochDone{});
  // The worker checks for a stall in each call, and more than stall_s, 0.01 s, passes between two calls. If an
  // evaluation counted as a stall, the command for the alert `stalled` would run at the latest between the second and
  // the third call.
  std::string slow;
  for (int call = 1; call <= 3; ++call) {
    sink->On(ReportOf(0.9));
    sink->On(ReportOf(0.1 * call));
    slow += fmt::format("slow[^\n]* {}0 %[^\n]*\n", call);
    WaitUntil([&] { return told().find(fmt::format(" {}0 %", call)) != std::string::npos; });
  }
  EXPECT_THAT(told(), testing::MatchesRegex(slow));
  sink->On(Evaluated{});
  WaitUntil([&] { return told().find("stalled") != std::string::npos; });
}

TEST_F(Alert, OneAtATime) {
  // Each command waits for the file `go`, and writes "two" if another command is running when the command starts.
  const std::string lock = folder_ + "/lock", go = folder_ + "/go";
  const auto sink = SinkOf("mkdir " + lock + " || echo two >> " + path_ + "; until [ -e " + go +
                           " ]; do sleep 0.01; done; rmdir " + lock + "; " + Tells());
  sink->On(ReportOf(0.4));
  WaitUntil([&] { return fs::exists(lock); });
  sink->On(ReportOf(0.9));
  sink->On(ReportOf(0.3));
  WriteFile(go, "");
  WaitUntil([&] { return told().find("30 %") != std::string::npos; });
  EXPECT_EQ(told().find("two"), std::string::npos) << told();
  EXPECT_NE(told().find("40 %"), std::string::npos) << told();
}

TEST_F(Alert, AFailureTakesThePlaceOfACommandThatRuns) {
  const std::string began = folder_ + "/began";
  const auto sink =
      SinkOf("[ $LOCKSTEP_ALERT = failed ] || { touch " + began + "; sleep 1000; }; " + Tells());
  sink->On(ReportOf(0.4));
  WaitUntil([&] { return fs::exists(began); });
  sink->On(RunFailed{.step = 1, .status = 70, .reason = "a bug"});
  EXPECT_EQ(told(), "failed|the/run|step 1: status 70: a bug\n");
}

TEST_F(Alert, ACommandThatOutlivesTheProcessIsEnded) {
  const std::string pid = folder_ + "/pid";
  testing::internal::CaptureStderr();
  {
    const auto sink =
        SinkOf("echo $$ > " + pid + ".new; mv " + pid + ".new " + pid + "; sleep 1000");
    sink->On(ReportOf(0.4));
    WaitUntil([&] { return fs::exists(pid); });
  }
  EXPECT_EQ(kill(std::stoi(ReadFile(pid)), 0), -1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("lockstep: warning: observe.on_alert: the command was killed"));
}

TEST_F(Alert, ACommandThatFailsIsNamed) {
  testing::internal::CaptureStderr();
  {
    const auto sink = SinkOf("echo what it prints; exit 7");
    sink->On(RunFailed{});
    sink->On(RunFailed{});
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said,
            "what it prints\n"
            "lockstep: warning: observe.on_alert: the command failed with status 7\n"
            "what it prints\n");
}

TEST_F(Alert, TheCommandIsNoRankAndHasNoneOfTheRunsFiles) {
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  const std::string inherited = folder_ + "/inherited";
  const FileDescriptor file(
      open(inherited.c_str(), O_RDONLY | O_CREAT, 0666));  // a file without O_CLOEXEC
  const auto sink = SinkOf("echo rank ${OMPI_COMM_WORLD_RANK-none} >> " + path_ +
                           "; ls -l /proc/$$/fd >> " + path_);
  sink->On(RunFailed{});
  unsetenv("OMPI_COMM_WORLD_RANK");
  EXPECT_THAT(told(), testing::StartsWith("rank none\n"));
  EXPECT_THAT(told(), testing::HasSubstr("/dev/null"));
  EXPECT_THAT(told(), testing::Not(testing::HasSubstr(inherited)));
}

}  // namespace
}  // namespace lockstep
