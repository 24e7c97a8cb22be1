#include "launch/job/stop_time.h"

#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include "base/error.h"

namespace lockstep {
namespace {

double SecondsOf(char unit) {
  switch (unit) {
    case 'd':
      return 86400;
    case 'h':
      return 3600;
    case 'm':
      return 60;
    case 's':
      return 1;
    default:
      return 0;
  }
}

}  // namespace

double ParseDuration(const std::string& text) {
  double seconds = 0;
  const char* const end = text.data() + text.size();
  const char* next = text.data();
  double unit_before = SecondsOf('d') + 1;
  while (next != end) {
    double number = 0;
    const auto [behind, error] = std::from_chars(next, end, number, std::chars_format::fixed);
    const double unit = error == std::errc() && behind != end ? SecondsOf(*behind) : 0;
    // Each unit may be given once, and larger units must come first.
    if (unit == 0 || unit >= unit_before || !std::isfinite(number) || number < 0) {
      throw UsageError("\"{}\" is no length of time: write 8h30m, 90s or 1d12h", text);
    }
    seconds += number * unit;
    unit_before = unit;
    next = behind + 1;
  }
  if (!(seconds > 0)) {
    throw UsageError("\"{}\" is no length of time: write 8h30m, 90s or 1d12h", text);
  }
  return seconds;
}

std::time_t ParseClockTime(const std::string& text, std::time_t now) {
  const bool utc = text.ends_with('Z');
  const std::string local = utc ? text.substr(0, text.size() - 1) : text;
  const auto seconds_of = [&](std::tm time) {
    time.tm_isdst = -1;
    return utc ? timegm(&time) : std::mktime(&time);
  };
  const auto parse = [&](const char* format, std::tm& time) {
    const char* const end = strptime(local.c_str(), format, &time);
    return end != nullptr && *end == '\0';
  };
  for (const char* format :
       {"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"}) {
    std::tm time{};
    if (parse(format, time)) return seconds_of(time);
  }
  for (const char* format : {"%H:%M:%S", "%H:%M"}) {
    std::tm time{};
    utc ? gmtime_r(&now, &time) : localtime_r(&now, &time);
    time.tm_sec = 0;
    if (!parse(format, time)) continue;
    if (seconds_of(time) <= now) ++time.tm_mday;
    return seconds_of(time);
  }
  throw UsageError("\"{}\" is no time: write 18:30 or \"2026-12-01 18:30\"", text);
}

}  // namespace lockstep
