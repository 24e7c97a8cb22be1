// A line on the terminal that is redrawn in place, and the times that such lines show.
#pragma once

#include <string>

namespace lockstep {

// "1m05s", "3h20m".
std::string DurationText(double seconds);

// Writes to standard output.
class LiveLine {
 public:
  LiveLine() = default;
  // Removes the line, if one is drawn.
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  void Draw(const std::string& line);

  // A line that stays; the live one goes.
  void Say(const std::string& line);

 private:
  void Remove();

  bool is_drawn_ = false;
};

}  // namespace lockstep
