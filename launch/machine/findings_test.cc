#include "launch/machine/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

Finding Disk(double value, State state = State::kOk) {
  return {.check = "disk",
          .state = state,
          .figure = "wrote " + std::to_string(static_cast<int>(value)) + " MB/s",
          .advice = state == State::kOk ? "" : "take another disk",
          .value = value,
          .unit = "MB/s"};
}

TEST(Findings, OfAllRanksAlikeAreOneLine) {
  const Finding mpi{.check = "mpi", .figure = "Open MPI 4.1.4"};
  EXPECT_EQ(Report({{mpi}, {mpi}}), "ok    mpi           Open MPI 4.1.4\n1 ok, 0 warn, 0 fail\n");
}

TEST(Findings, OfThoseThatAreWellTheLeastIsShown) {
  EXPECT_EQ(Report({{Disk(900)}, {Disk(300)}, {Disk(700)}}),
            "ok    disk          rank 1: wrote 300 MB/s (the least of all ranks)\n"
            "1 ok, 0 warn, 0 fail\n");
}

TEST(Findings, WhatIsAmissIsNeverLeftOut) {
  const std::string report =
      Report({{Disk(900)}, {Disk(5, State::kWarn)}, {Disk(5, State::kWarn)}, {Disk(800)}});
  EXPECT_THAT(report, HasSubstr("ok    disk          rank 3: wrote 800 MB/s"));
  EXPECT_THAT(report,
              HasSubstr("warn  disk          ranks 1-2: wrote 5 MB/s: take another disk\n"));
  EXPECT_THAT(report, HasSubstr("1 ok, 1 warn, 0 fail"));
  EXPECT_EQ(WorstOf({{Disk(900)}, {Disk(5, State::kWarn)}}), State::kWarn);
}

TEST(Findings, OnlyOneRankLooksAtSomeThings) {
  EXPECT_THAT(Report({{Disk(900)}, {}}), Not(HasSubstr("rank")));
}

TEST(Findings, TravelAsText) {
  const std::vector<Finding> sent{Disk(17, State::kFail), {.check = "mpi", .figure = "a\"b\n"}};
  const std::vector<Finding> received = FromText(ToText(sent));
  ASSERT_EQ(received.size(), sent.size());
  EXPECT_EQ(JsonReport({received}), JsonReport({sent}));
  EXPECT_THAT(
      JsonReport({sent}),
      HasSubstr(R"({"check":"disk","state":"fail","figure":"wrote 17 MB/s","value":17.0,)"));
}

TEST(Findings, AMeasuredValueIsComparedWithTheHardwares) {
  EXPECT_EQ(StateOf(70, 100, 0.6), State::kOk);
  EXPECT_EQ(StateOf(50, 100, 0.6), State::kWarn);
  EXPECT_EQ(StateOf(50, 0, 0.6), State::kOk);  // the maximum is unknown
}

}  // namespace
}  // namespace lockstep
