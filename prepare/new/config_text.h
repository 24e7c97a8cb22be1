// ConfigText: writes the text of a config line by line, with comments that say why.
//
// Promise: texts and comments may hold any bytes: the config that is written can be read, and a comment stays a comment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class ConfigText {
 public:
  // Lines that begin with #, cut between words at 100 columns.
  void Comment(const std::string& text);

  // A line such as `epochs: 40`. The comment stands behind it, or above it if the line would be too long.
  void Line(const std::string& line, const std::string& comment = "");

  // A block in braces; what comes until Close() is indented.
  void Open(const std::string& name);
  void Close();

  void Blank() { text_ += '\n'; }

  const std::string& text() const { return text_; }

 private:
  std::string Indent() const { return std::string(2 * depth_, ' '); }

  std::string text_;
  size_t depth_ = 0;
};

// Returns `text` in quotes, as a config holds it.
std::string InQuotes(std::string_view text);

// Returns a list of texts as a field's value: "a", or ["a", "b"].
std::string ListInQuotes(const std::vector<std::string>& texts);

// Returns `number` with as many digits as are needed for a setting.
std::string AsSetting(double number);

}  // namespace lockstep
