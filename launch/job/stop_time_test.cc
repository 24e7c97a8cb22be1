#include "launch/job/stop_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/testing/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(ParseDuration, AddsItsUnits) {
  EXPECT_EQ(ParseDuration("8h30m"), 30600);
  EXPECT_EQ(ParseDuration("90s"), 90);
  EXPECT_EQ(ParseDuration("1d12h"), 129600);
  EXPECT_EQ(ParseDuration("1d2h3m4s"), 93784);
  EXPECT_EQ(ParseDuration("1.5h"), 5400);
  EXPECT_EQ(ParseDuration("0.5s"), 0.5);
}

TEST(ParseDuration, RefusesWhatIsNone) {
  for (const std::string text : {"", "8", "h", "8x", "8h30", "-8h", "30m8h", "8h8h", "0s", "8h 30m",
                                 "nans", "infs", "1e3s", "8:30", "8H"}) {
    EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { ParseDuration(text); }),
                HasSubstr("\"" + text + "\" is no length of time"));
  }
}

class ParseClockTimeTest : public testing::Test {
 protected:
  ParseClockTimeTest() {
    setenv("TZ", "Europe/Berlin", 1);
    tzset();
  }
};

constexpr std::time_t kNoon = 1'782'900'000;  // 2026-07-01 10:00:00 UTC, 12:00 in Berlin

TEST_F(ParseClockTimeTest, WithADate) {
  EXPECT_EQ(ParseClockTime("2026-07-01 12:00", 0), kNoon);
  EXPECT_EQ(ParseClockTime("2026-07-01T12:00", 0), kNoon);
  EXPECT_EQ(ParseClockTime("2026-07-01 12:00:07", 0), kNoon + 7);
  EXPECT_EQ(ParseClockTime("2026-07-01T10:00:07Z", 0), kNoon + 7);
}

TEST_F(ParseClockTimeTest, OfTheDayIsTheNext) {
  EXPECT_EQ(ParseClockTime("12:01", kNoon), kNoon + 60);
  EXPECT_EQ(ParseClockTime("12:00:01", kNoon), kNoon + 1);
  EXPECT_EQ(ParseClockTime("11:59", kNoon), kNoon - 60 + 86400);
  EXPECT_EQ(ParseClockTime("12:00", kNoon), kNoon + 86400);
  EXPECT_EQ(ParseClockTime("10:01Z", kNoon), kNoon + 60);
}

TEST_F(ParseClockTimeTest, RefusesWhatIsNone) {
  for (const std::string text :
       {"", "noon", "25:00", "12", "12:00 ", "2026-13-01 12:00", "12:00x", "Z"}) {
    EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { ParseClockTime(text, kNoon); }),
                HasSubstr("\"" + text + "\" is no time"));
  }
}

}  // namespace
}  // namespace lockstep
