#include "base/say.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

TEST(Say, ShowsWhatWouldMoveACursor) {
  EXPECT_EQ(Printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(Printable("bell\a delete\x7f"), "bell\\x07 delete\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m");
}

TEST(Say, LeavesTextAlone) {
  for (const char* text : {"two\nlines\tand a tab",
                           "Stra\xc3\x9f"
                           "e \xe6\x97\xa5\xe6\x9c\xac",
                           "no UTF-8: \xff\xc2", ""}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(Say, AWarningRemovesTheLineThatIsDrawn) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  DrawLine("\rstep 7");
  Warn("the disk is full");
  Warn("the disk is full");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "\rstep 7\r\033[K");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "lockstep: warning: the disk is full\nlockstep: warning: the disk is full\n");
}

TEST(Say, CountsWhatComesAgain) {
  Repeats repeats;
  std::vector<std::string> said;
  for (int step = 100; step <= 900; step += 100) {
    said.push_back(repeats.Count(fmt::format("no checkpoint of step {}", step)).value_or("-"));
  }
  EXPECT_THAT(said, testing::ElementsAre("", " (2 times so far)", "-", " (4 times so far)", "-",
                                         "-", "-", " (8 times so far)", "-"));
  EXPECT_EQ(repeats.Count("another"), "");
}

}  // namespace
}  // namespace lockstep
