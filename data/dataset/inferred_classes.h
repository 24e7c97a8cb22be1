// Checks for data sets whose number of classes is inferred from the labels: it is the greatest label plus one.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// The greatest number of classes that may be inferred. More classes are refused as a mistake, unless the user sets
// data.classes.
inline constexpr int64_t kMaxInferredClasses = 1'000'000;

// Returns a line for Dataset::Remarks() if the least of `labels`, from which the number of classes was inferred, is
// greater than 0; otherwise returns no line. Negative labels are ignored.
template <typename Label>
std::vector<std::string> RemarksOnLabels(const std::string& file, std::span<const Label> labels) {
  Label least = std::numeric_limits<Label>::max();
  Label greatest = -1;
  for (const Label label : labels) {
    if (label < 0) continue;
    least = std::min(least, label);
    greatest = std::max(greatest, label);
  }
  if (greatest < 0 || least == 0) return {};
  return {fmt::format(
      "{}: its labels are {} to {}: classes are counted from 0, so the model learns {} and has no "
      "samples of class {}{}",
      file, least, greatest, greatest + 1, least == 1 ? "" : "0 to ", least - 1)};
}

}  // namespace lockstep
