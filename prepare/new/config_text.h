// ConfigText: builds the text of a config line by line, with comments that give reasons.
//
// Promise: texts and comments may hold any bytes. The config can always be parsed, and no text ends a comment early.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class ConfigText {
 public:
  // Adds lines that begin with #, broken between words at 100 columns.
  void Comment(const std::string& text);

  // Adds a line such as `epochs: 40`. The comment stands at the end of the line, or above the line if the line would
  // otherwise be too long.
  void Line(const std::string& line, const std::string& comment = "");

  // Begins a block in braces. Lines up to Close() are indented.
  void Open(const std::string& name);
  void Close();

  void Blank() { text_ += '\n'; }

  const std::string& text() const { return text_; }

 private:
  std::string Indent() const { return std::string(2 * depth_, ' '); }

  std::string text_;
  size_t depth_ = 0;
};

// Returns `text` in quotes and escaped, as a string in a config.
std::string InQuotes(std::string_view text);

// Returns a list of texts as a field's value: "a", or ["a", "b"].
std::string ListInQuotes(const std::vector<std::string>& texts);

// Returns `number` as text with at most 6 significant digits.
std::string AsSetting(double number);

}  // namespace lockstep
