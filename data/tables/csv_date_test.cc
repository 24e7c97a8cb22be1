#include "data/tables/csv_date.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

namespace lockstep {
namespace {

double DaysOf(const std::string& text) { return ParseDate(text).value().days; }

TEST(CsvDate, CountsDays) {
  EXPECT_EQ(DaysOf("1970-01-01"), 0);
  EXPECT_EQ(DaysOf(" 1969-12-31 "), -1);
  EXPECT_EQ(DaysOf("2024-02-29"), 19782);  // the output of `date -u -d 2024-02-29 +%s` / 86400
  EXPECT_EQ(DaysOf("0001-01-01"), -719162);
  EXPECT_EQ(DaysOf("9999-12-31"), 2932896);
}

TEST(CsvDate, ReadsTimes) {
  EXPECT_EQ(DaysOf("1970-01-02 06:00"), 1.25);
  EXPECT_EQ(DaysOf("1970-01-02T06:00:00"), 1.25);
  EXPECT_EQ(DaysOf("1970-01-02t18:00:00.000Z"), 1.75);
  EXPECT_EQ(DaysOf("1970-01-02 00:00:43,2"), 1.0005);
  EXPECT_EQ(DaysOf("1970-01-02 01:00+02:00"), 1 - 1.0 / 24);
  EXPECT_EQ(DaysOf("1970-01-02 01:00 -0200"), 1.125);
  EXPECT_EQ(DaysOf("1970-01-02 01:00-02"), 1.125);
  EXPECT_TRUE(ParseDate("2024-02-29 00:00:01")->has_time());
  EXPECT_FALSE(ParseDate("2024-02-29 00:00:00")->has_time());
}

TEST(CsvDate, KnowsTheTimeThatTheClockShowed) {
  const CsvDate evening = ParseDate("1970-01-02 18:00-09:00").value();
  EXPECT_EQ(evening.days, 2.125);
  EXPECT_EQ(evening.local_days, 1.75);
  EXPECT_EQ(ParseDate("1970-01-02 18:00Z")->local_days, 1.75);
  EXPECT_FALSE(ParseDate("1970-01-02 00:00+02:00")->has_time());
}

TEST(CsvDate, RefusesWhatIsNoDate) {
  for (const std::string text : {"",
                                 "x",
                                 "2024",
                                 "2024-2-29",
                                 "2023-02-29",
                                 "2024-13-01",
                                 "2024-00-10",
                                 "0000-01-01",
                                 "24-01-01",
                                 "2024/01/01",
                                 "31.05.2024",
                                 "2024-01-01x",
                                 "2024-01-01 ",
                                 "2024-01-01T",
                                 "2024-01-01 6:00",
                                 "2024-01-01 06",
                                 "2024-01-01 24:00",
                                 "2024-01-01 06:60",
                                 "2024-01-01 06:00:60",
                                 "2024-01-01 06:00:00.",
                                 "2024-01-01 06:00+",
                                 "2024-01-01 06:00+2",
                                 "2024-01-01 06:00 ",
                                 "20240101",
                                 "-024-01-01"}) {
    const bool is_trimmed = text.ends_with(' ');  // spaces after a date are ignored
    EXPECT_EQ(ParseDate(text).has_value(), is_trimmed) << text;
  }
}

TEST(CsvDate, PlacesAreOnCircles) {
  std::array<float, 6> numbers{};
  // 1 July 2024 is a Monday, and 182 of the 366 days of 2024 are before it. 06:00 adds a quarter of a day.
  WriteDateCircles(CsvDates::kTimes, DaysOf("2024-07-01 06:00"), numbers.data());
  EXPECT_NEAR(numbers[0], std::sin(2 * M_PI * 182.25 / 366), 1e-7);
  EXPECT_NEAR(numbers[1], std::cos(2 * M_PI * 182.25 / 366), 1e-7);
  EXPECT_NEAR(numbers[2], std::sin(2 * M_PI * 0.25 / 7), 1e-7);
  EXPECT_NEAR(numbers[3], std::cos(2 * M_PI * 0.25 / 7), 1e-7);
  EXPECT_NEAR(numbers[4], 1, 1e-7);
  EXPECT_NEAR(numbers[5], 0, 1e-7);
  numbers.fill(9);
  WriteDateCircles(CsvDates::kDays, DaysOf("1969-12-28"), numbers.data());  // a Sunday
  EXPECT_NEAR(numbers[0], std::sin(2 * M_PI * 361 / 365), 1e-6);
  EXPECT_NEAR(numbers[2], std::sin(2 * M_PI * 6 / 7), 1e-6);
  EXPECT_EQ(numbers[4], 9);
  EXPECT_EQ(DateCircleNumbers(CsvDates::kDays), 4);
  EXPECT_EQ(DateCircleNumbers(CsvDates::kTimes), 6);
}

}  // namespace
}  // namespace lockstep
