// Reads the times by which a run must have ended, as users write them (--time-budget 8h30m, --stop-at 18:30).
#pragma once

#include <ctime>
#include <string>

namespace lockstep {

// "8h30m", "90s", "1d12h", "1.5h": seconds. Throws Error (kUsage).
double ParseDuration(const std::string& text);

// "18:30" (the next one after `now`), "2026-12-01 18:30", "2026-12-01T18:30:00", in this machine's time zone, or
// with a Z behind it in UTC: seconds since 1970. Throws Error (kUsage).
std::time_t ParseClockTime(const std::string& text, std::time_t now);

}  // namespace lockstep
