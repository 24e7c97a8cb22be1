// LiveLine: shows progress in one line that is redrawn in place on a terminal, or in plain lines elsewhere. Warnings
// and errors (base/say.h) remove the live line before they are printed.
#pragma once

#include <chrono>
#include <string>

namespace lockstep {

// Returns a duration, given in seconds, as a text such as "1m05s" or "3h20m".
std::string DurationText(double seconds);

// Shows progress on standard output.
class LiveLine {
 public:
  // `live` says whether standard output is a terminal, on which one line may be redrawn. If it is not a terminal,
  // IsDue() returns true as soon as `plain_period` has passed since the last call of Show().
  LiveLine(bool live, std::chrono::seconds plain_period)
      : is_live_(live), plain_period_(plain_period) {}
  // Removes the line, if one is drawn.
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  bool is_live() const { return is_live_; }

  // Returns whether enough time has passed since the last call of Show(): 0.1 s on a terminal, `plain_period`
  // elsewhere.
  bool IsDue() const;

  // Replaces the live line on a terminal. Elsewhere, prints the line as Say() does.
  void Show(const std::string& line);

  // Removes the live line, and prints a line that stays.
  void Say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;

  bool is_live_;
  std::chrono::seconds plain_period_;
  Clock::time_point shown_at_;
};

}  // namespace lockstep
