#include "data/tables/csv_date.h"

#include <array>
#include <chrono>
#include <cmath>
#include <numbers>

#include "data/tables/csv_cells.h"

namespace lockstep {
namespace {

namespace chrono = std::chrono;

// Parses a text from its beginning, part by part. If an expected part is missing, ok() is false from then on.
class Parts {
 public:
  explicit Parts(std::string_view text) : text_(text) {}

  bool ok() const { return ok_; }
  bool empty() const { return text_.empty(); }

  // Parses exactly `digits` digits, and returns the number that they form.
  int Number(size_t digits) {
    int number = 0;
    for (size_t i = 0; i < digits; ++i) {
      ok_ = ok_ && i < text_.size() && text_[i] >= '0' && text_[i] <= '9';
      if (ok_) number = 10 * number + (text_[i] - '0');
    }
    if (ok_) text_.remove_prefix(digits);
    return number;
  }

  // Skips the next character if it is one of `characters`, and otherwise makes ok() false.
  void Require(std::string_view characters) { ok_ = Take(characters) && ok_; }

  bool Take(std::string_view characters) {
    if (text_.empty() || characters.find(text_.front()) == characters.npos) return false;
    text_.remove_prefix(1);
    return true;
  }

  // Parses the digits after a decimal point, and returns the fraction that they stand for.
  double Fraction() {
    double fraction = 0;
    double unit = 1;
    ok_ = ok_ && !text_.empty() && text_.front() >= '0' && text_.front() <= '9';
    while (ok_ && !text_.empty() && text_.front() >= '0' && text_.front() <= '9') {
      unit /= 10;
      fraction += unit * (text_.front() - '0');
      text_.remove_prefix(1);
    }
    return fraction;
  }

  void RequireAtMost(int number, int most) { ok_ = ok_ && number <= most; }

 private:
  std::string_view text_;
  bool ok_ = true;
};

// Parses hh:mm, and returns this time of day in minutes.
int ClockMinutes(Parts& parts) {
  const int hours = parts.Number(2);
  parts.RequireAtMost(hours, 23);
  parts.Require(":");
  const int minutes = parts.Number(2);
  parts.RequireAtMost(minutes, 59);
  return 60 * hours + minutes;
}

// Parses the rest of the text after the time: Z, an offset, or nothing. Returns the offset in minutes.
int OffsetMinutes(Parts& parts) {
  if (parts.empty() || parts.Take("Zz")) return 0;
  const bool is_before = parts.Take("-");
  if (!is_before) parts.Require("+");
  const int hours = parts.Number(2);
  parts.RequireAtMost(hours, 23);
  int minutes = 0;
  if (!parts.empty()) {
    parts.Take(":");
    minutes = parts.Number(2);
    parts.RequireAtMost(minutes, 59);
  }
  return (is_before ? -1 : 1) * (60 * hours + minutes);
}

// A time of day and its offset from UTC, in seconds.
struct Time {
  double of_day = 0;
  double offset = 0;
};

Time TimeIn(Parts& parts) {
  const int minutes = ClockMinutes(parts);
  double seconds = 0;
  if (parts.Take(":")) {
    const int whole = parts.Number(2);
    parts.RequireAtMost(whole, 59);
    seconds = whole;
    if (parts.Take(".,")) seconds += parts.Fraction();
  }
  parts.Take(" ");
  return {.of_day = 60.0 * minutes + seconds, .offset = 60.0 * OffsetMinutes(parts)};
}

}  // namespace

std::optional<CsvDate> ParseDate(std::string_view text) {
  Parts parts(TrimmedCell(text));
  const int year = parts.Number(4);
  parts.Require("-");
  const int month = parts.Number(2);
  parts.Require("-");
  const int day = parts.Number(2);
  Time time;
  if (parts.ok() && !parts.empty()) {
    parts.Require("Tt ");
    time = TimeIn(parts);
  }
  const chrono::year_month_day date(chrono::year(year), chrono::month(static_cast<unsigned>(month)),
                                    chrono::day(static_cast<unsigned>(day)));
  if (!parts.ok() || !parts.empty() || !date.ok() || year == 0) return std::nullopt;
  constexpr double kSecondsOfADay = 86400;
  const auto midnight = static_cast<double>(chrono::sys_days(date).time_since_epoch().count());
  return CsvDate{.days = midnight + (time.of_day - time.offset) / kSecondsOfADay,
                 .local_days = midnight + time.of_day / kSecondsOfADay};
}

bool CsvDate::has_time() const { return local_days != std::floor(local_days); }

void WriteDateCircles(CsvDates dates, double local_days, float* numbers) {
  const double whole = std::floor(local_days);
  const double time = local_days - whole;
  const chrono::sys_days day{chrono::days(static_cast<int>(whole))};
  const chrono::year year = chrono::year_month_day(day).year();
  const chrono::sys_days new_year(year / chrono::January / 1);
  const double days_of_year = year.is_leap() ? 366 : 365;
  const double weekday = chrono::weekday(day).iso_encoding() - 1;
  const std::array<double, 3> places{
      (static_cast<double>((day - new_year).count()) + time) / days_of_year, (weekday + time) / 7,
      time};
  const auto circles = static_cast<size_t>(DateCircleNumbers(dates) / 2);
  for (size_t i = 0; i < circles; ++i) {
    const double angle = 2 * std::numbers::pi * places.at(i);
    *numbers++ = static_cast<float>(std::sin(angle));
    *numbers++ = static_cast<float>(std::cos(angle));
  }
}

}  // namespace lockstep
