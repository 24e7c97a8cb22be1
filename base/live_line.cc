#include "base/live_line.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "base/say.h"

namespace lockstep {

std::string DurationText(double seconds) {
  const int64_t total = std::lround(seconds);
  const int64_t hours = total / 3600;
  const int64_t minutes = total / 60 % 60;
  return hours > 0 ? fmt::format("{}h{:02}m", hours, minutes)
                   : fmt::format("{}m{:02}s", minutes, total % 60);
}

LiveLine::~LiveLine() { RemoveLine(); }

bool LiveLine::IsDue() const {
  constexpr auto kLivePeriod = std::chrono::milliseconds(100);
  const Clock::duration period = is_live_ ? Clock::duration(kLivePeriod) : plain_period_;
  return Clock::now() - shown_at_ >= period;
}

void LiveLine::Show(const std::string& line) {
  shown_at_ = Clock::now();
  if (!is_live_) {
    Say(line);
    return;
  }
  // The text is a carriage return, the line, and 'erase to the end of the line' (ECMA-48, EL). Automatic wrapping at
  // the terminal's edge (DECAWM) is off in the meantime, because the next redraw would not erase the wrapped rest of a
  // line.
  DrawLine(fmt::format("\033[?7l\r{}\033[K\033[?7h", Printable(line)));
}

void LiveLine::Say(const std::string& line) {
  RemoveLine();
  Print("{}\n", line);
}

}  // namespace lockstep
