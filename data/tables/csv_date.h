// Parses ISO 8601 dates, and converts them to numbers that are useful as a model's inputs.
//
// A date is YYYY-MM-DD. A time may follow after a T or a space: hh:mm, hh:mm:ss or hh:mm:ss.fraction, with or without Z
// or an offset (+02:00, +0200, +02). The number of days since 1970-01-01 is in UTC: the offset is subtracted from the
// time. The positions in the year, in the week and in the day are those of the local time as it is written, so that a
// model can tell evening from morning in every time zone.
//
// what can fail -> what the caller sees -> the test that shows it (data/tables/csv_date_test.cc)
//   a text that is no such date, a 30th of February, a year before 1 -> nullopt -> CsvDate.RefusesWhatIsNoDate
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "data/tables/csv_options.h"

namespace lockstep {

// The number of days from 1970-01-01 00:00 to a date, with the time of day as a fraction.
struct CsvDate {
  double days = 0;        // in UTC
  double local_days = 0;  // in local time, as written: the offset is not subtracted

  // Returns whether the local time of day is not 00:00.
  bool has_time() const;
};

// Returns the date that `text` holds, or nullopt if `text` is no such date.
std::optional<CsvDate> ParseDate(std::string_view text);

// Writes DateCircleNumbers(dates) numbers: the sine and the cosine of the position in the year (from 1 January, as a
// fraction of that year's length), of the position in the week (from Monday) and, for CsvDates::kTimes, of the position
// in the day.
void WriteDateCircles(CsvDates dates, double local_days, float* numbers);

}  // namespace lockstep
