// InSmallLetters(): returns a text with its ASCII letters in lower case.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace lockstep {

inline std::string InSmallLetters(std::string_view text) {
  std::string small(text);
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return std::tolower(c); });
  return small;
}

}  // namespace lockstep
