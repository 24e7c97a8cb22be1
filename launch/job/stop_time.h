// Parses the times by which a run must have ended, as users write them (--time-budget 8h30m, --stop-at 18:30).
#pragma once

#include <ctime>
#include <string>

namespace lockstep {

// Converts a duration, such as "8h30m", "90s", "1d12h" or "1.5h", to seconds. Throws Error (kUsage).
double ParseDuration(const std::string& text);

// Converts a time to Unix seconds. The text is "18:30" (the next 18:30 after `now`), "2026-12-01 18:30" or
// "2026-12-01T18:30:00" in this machine's time zone, or in UTC if a Z follows it. Throws Error (kUsage).
std::time_t ParseClockTime(const std::string& text, std::time_t now);

}  // namespace lockstep
