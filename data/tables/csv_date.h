// Reads dates as ISO 8601 writes them, and makes numbers of them that a model can learn from.
//
// A date is YYYY-MM-DD, with or without a time behind a T or a space: hh:mm, hh:mm:ss or hh:mm:ss.fraction, with or
// without Z or an offset (+02:00, +0200, +02). Days are UTC's: the offset is subtracted. Places in the year, in the
// week and in the day are those of the clock that showed the time: they tell an evening from a morning wherever it was.
//
// what can fail -> what the caller sees -> the test that shows it (data/tables/csv_date_test.cc)
//   a text that is no such date, a 30th of February, a year before 1 -> nullopt -> CsvDate.RefusesWhatIsNoDate
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "data/tables/csv_options.h"

namespace lockstep {

// The days from 1970-01-01 00:00 to a date, with the time as a fraction.
struct CsvDate {
  double days = 0;        // in UTC
  double local_days = 0;  // as the text has them, without the offset

  // Whether there is a time of the day other than 00:00.
  bool has_time() const;
};

std::optional<CsvDate> ParseDate(std::string_view text);

// Writes DateCircleNumbers() numbers: sine and cosine of the place in the year (from 1 January, of the length of that
// year), of the place in the week (from Monday) and, for CsvDates::kTimes, of the place in the day.
void WriteDateCircles(CsvDates dates, double local_days, float* numbers);

}  // namespace lockstep
