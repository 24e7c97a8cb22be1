// Lines that show progress: one line that is redrawn in place on a terminal, and plain lines elsewhere.
#pragma once

#include <chrono>
#include <string>

namespace lockstep {

// "1m05s", "3h20m".
std::string DurationText(double seconds);

// Writes to standard output.
class LiveLine {
 public:
  // `live`: standard output is a terminal that one line may be redrawn on.
  LiveLine(bool live, std::chrono::seconds plain_period)
      : is_live_(live), plain_period_(plain_period) {}
  // Removes the line, if one is drawn.
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  bool is_live() const { return is_live_; }

  // Whether it is long enough since Show(): a tenth of a second on a terminal, plain_period elsewhere.
  bool IsDue() const;

  // In place on a terminal, else as Say() does.
  void Show(const std::string& line);

  // A line that stays; the live one goes.
  void Say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;

  void Remove();

  bool is_live_;
  std::chrono::seconds plain_period_;
  Clock::time_point shown_at_;
  bool is_drawn_ = false;
};

}  // namespace lockstep
